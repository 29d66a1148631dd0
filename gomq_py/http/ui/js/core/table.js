// A table of things that the broker lists: pages, order and filter are the broker's, so that ten thousand
// rows cost what the hundred shown do.
//
//     const list = table({
//         id: "queues", caption: "Queues", context,
//         columns: [{key: "name", label: "Name", cell: row => nameLink(...), sort: "name"},
//                   {key: "ready", label: "Ready", cell: row => number(row.messages_ready), sort: "messages_ready",
//                    numeric: true, hidden: true, early: true}],     early: the next after the first on a narrow screen
//         load: query => get("queues", {signal, query}),    query: {page, page_size, sort, sort_reverse, name, use_regex}
//         key: row => `${row.vhost}\n${row.name}`,           what tells two rows apart
//         href: row => link("queues", row.vhost, row.name),  where Enter leads
//         actions: [{label: "Delete...", kind: "danger", needs: row => true, run: async rows => {...}}],  with boxes
//         buttons: [node, ...],  empty: "There are no queues.", order: "name", reversed: true, every: 5000,
//     });
//     root.append(list.element); await list.start();         list.refresh() after a change
//
// load may also answer a plain array: then pages, order and filter (column.value(row) or the cell's text) are
// made here. Keys: j and k go down and up, Enter opens, x chooses. The state stands in the address.

import {h, replace} from "./dom.js";
import {number} from "./format.js";
import {lists} from "./router.js";

const SIZES = [25, 50, 100, 250, 500];
const FILTER_WAIT_MS = 250;
const NARROW = "(max-width: 760px)"; // as in page.css

export function table(options) {
    return new Table(options);
}

class Table {
    constructor(options) {
        this.options = {key: row => row.name, empty: "No entries.", every: 5000, ...options};
        this.context = options.context;
        this.rows = [];
        this.bodies = new Map(); // key -> {row, tr}
        this.chosen = new Set();
        this.currentKey = null;
        this.answer = {page: 1, page_count: 1, filtered_count: 0, total_count: 0};
        const prefix = this.prefix = options.prefix ?? "";
        const query = this.context.query;
        this.state = {
            page: Number(query[prefix + "page"]) || 1,
            size: Number(query[prefix + "size"]) || Number(localStorage.getItem("gomq.size")) || 100,
            sort: query[prefix + "sort"] ?? options.order ?? "",
            reverse: prefix + "desc" in query ? query[prefix + "desc"] === "1" : Boolean(options.reversed && !query[prefix + "sort"]),
            name: query[prefix + "name"] ?? "",
            regex: query[prefix + "regex"] === "1",
        };
        this.shown = this.#storedColumns();
        this.#build();
        lists.shown = this;
    }

    /** Load now and every few seconds; resolves once the first rows are there. */
    start() {
        return this.context.every(this.options.every, () => this.#load());
    }

    /** Load at once, after a change. */
    async refresh() {
        try {
            await this.#load();
        } catch (error) {
            this.context.fail(error);
        }
    }

    /** The rows whose boxes are checked. */
    get selection() {
        return [...this.chosen].map(key => this.bodies.get(key)?.row).filter(Boolean);
    }

    /** One row down (1) or up (-1). */
    move(step) {
        const index = this.rows.findIndex(row => this.options.key(row) === this.currentKey);
        const next = this.rows[Math.max(0, Math.min(this.rows.length - 1, index < 0 ? 0 : index + step))];
        if (!next) return;
        this.currentKey = this.options.key(next);
        for (const [key, {tr}] of this.bodies) tr.classList.toggle("current", key === this.currentKey);
        const {tr} = this.bodies.get(this.currentKey);
        tr.scrollIntoView({block: "nearest"});
        (tr.querySelector("a") ?? tr).focus({preventScroll: true});
    }

    /** Open the current row. */
    open() {
        const found = this.bodies.get(this.currentKey);
        if (found && this.options.href) location.hash = this.options.href(found.row);
    }

    /** Check or uncheck the box of the current row. */
    toggle() {
        const box = this.bodies.get(this.currentKey)?.tr.querySelector("input[type=checkbox]");
        box?.click();
    }

    // the state

    #storedColumns() {
        const all = this.options.columns;
        try {
            const kept = JSON.parse(localStorage.getItem(`gomq.columns.${this.options.id}`));
            if (Array.isArray(kept)) return new Set(kept.filter(key => all.some(column => column.key === key)));
        } catch { /* as if nothing were kept */ }
        return new Set(all.filter(column => !column.hidden).map(column => column.key));
    }

    #columns() {
        const [first, ...others] = this.options.columns.filter(column => this.shown.has(column.key));
        if (!first || !matchMedia(NARROW).matches) return first ? [first, ...others] : [];
        return [first, ...others.filter(column => column.early), ...others.filter(column => !column.early)];
    }

    #set(patch) {
        Object.assign(this.state, patch);
        const {state, prefix, options} = this;
        const isUsual = state.sort === (options.order ?? "") && state.reverse === Boolean(options.reversed);
        this.context.setQuery({
            [prefix + "page"]: state.page > 1 ? state.page : null,
            [prefix + "size"]: state.size !== 100 ? state.size : null,
            [prefix + "sort"]: isUsual ? null : state.sort,
            [prefix + "desc"]: isUsual ? null : state.reverse ? "1" : "0",
            [prefix + "name"]: state.name,
            [prefix + "regex"]: state.regex ? "1" : null,
        });
        return this.refresh();
    }

    async #load() {
        const {state} = this;
        const mine = this.asked = Symbol();
        let answer;
        try {
            answer = await this.options.load({
                page: state.page, page_size: state.size, sort: state.sort, sort_reverse: state.reverse || null,
                name: state.name, use_regex: state.name && state.regex ? true : null,
            });
        } catch (error) {
            if (error.body?.error === "page_out_of_range" && state.page > 1) return this.#set({page: 1});
            if (error.status === 400 && state.name && state.regex) {
                this.#tellFilter(error.reason);
                return undefined;
            }
            throw error;
        }
        if (mine !== this.asked) return undefined; // another question has been asked since
        this.#tellFilter(null);
        if (Array.isArray(answer)) answer = this.#paged(answer);
        this.answer = answer;
        this.rows = answer.items;
        this.#draw();
        return undefined;
    }

    // What the broker does for long lists, done here for short ones.
    #paged(all) {
        const {state, options} = this;
        const column = options.columns.find(one => one.sort === state.sort);
        const valueOf = one => row => one.value ? one.value(row) : one.sort?.split(".").reduce((at, part) => at?.[part], row);
        let rows = all;
        if (state.name) {
            const wanted = state.name.toLowerCase();
            let fits = text => text.toLowerCase().includes(wanted);
            if (state.regex) {
                try {
                    const pattern = new RegExp(state.name, "iu");
                    fits = text => pattern.test(text);
                } catch (error) {
                    this.#tellFilter(error.message);
                }
            }
            const textOf = options.text ?? (row => options.columns.map(one => valueOf(one)(row) ?? "").join("\n"));
            rows = rows.filter(row => fits(String(textOf(row))));
        }
        if (column) {
            const value = valueOf(column);
            const of = row => value(row) ?? "";
            rows = [...rows].sort((a, b) => {
                const [x, y] = [of(a), of(b)];
                return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
            });
            if (state.reverse) rows.reverse();
        }
        const count = Math.max(1, Math.ceil(rows.length / state.size));
        const page = Math.min(state.page, count);
        return {
            page, page_count: count, filtered_count: rows.length, total_count: all.length,
            items: rows.slice((page - 1) * state.size, page * state.size),
        };
    }

    // what is seen

    #build() {
        const {options, state} = this;
        let timer = null;
        const later = () => {
            clearTimeout(timer);
            timer = setTimeout(() => this.#set({name: this.filter.value, regex: this.regex.checked, page: 1}), FILTER_WAIT_MS);
        };
        this.filter = h("input", {
            type: "search", class: "filter", placeholder: "Filter", "aria-label": `Filter ${options.caption}`,
            value: state.name, oninput: later, spellcheck: "false", autocomplete: "off",
        });
        this.regex = h("input", {type: "checkbox", checked: state.regex, onchange: later});
        this.filterFault = h("span", {class: "fault", role: "alert"});
        this.counter = h("span", {class: "counter", role: "status"});
        this.pager = h("span", {class: "pager"});
        this.bulk = h("div", {class: "bulk", hidden: true});
        this.head = h("thead");
        this.body = h("tbody");
        const element = h("table", {class: "list"}, h("caption", {class: "unseen"}, options.caption), this.head, this.body);
        this.nothing = h("p", {class: "nothing", hidden: true}, options.empty);
        this.element = h("div", {class: "listing", "data-list": options.id},
            h("div", {class: "tools"}, this.filter, h("label", {class: "check"}, this.regex, "Regex"), this.filterFault,
                this.counter, h("span", {class: "grow"}), options.buttons ?? null, this.#columnMenu()),
            this.bulk,
            h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": options.caption}, element),
            this.nothing, this.pager);
        this.#drawHead();
    }

    #columnMenu() {
        const box = column => h("label", {class: "check"}, h("input", {
            type: "checkbox", checked: this.shown.has(column.key), onchange: event => {
                if (event.target.checked) this.shown.add(column.key);
                else this.shown.delete(column.key);
                localStorage.setItem(`gomq.columns.${this.options.id}`, JSON.stringify([...this.shown]));
                this.bodies.clear();
                replace(this.body);
                this.#drawHead();
                this.#draw();
            },
        }), column.label);
        return h("details", {class: "menu"}, h("summary", {class: "button"}, "Columns"),
            h("div", {class: "choices", role: "group", "aria-label": "Columns"}, this.options.columns.map(box)));
    }

    #drawHead() {
        const {state} = this;
        const cell = column => {
            const sorted = column.sort && state.sort === column.sort;
            const attributes = {scope: "col", class: column.numeric ? "numeric" : null, title: column.title};
            if (!column.sort) return h("th", attributes, column.label);
            return h("th", {...attributes, "aria-sort": sorted ? (state.reverse ? "descending" : "ascending") : "none"},
                h("button", {type: "button", class: "sort", onclick: () => {
                    const reverse = sorted ? !state.reverse : Boolean(column.numeric);
                    this.#set({sort: column.sort, reverse, page: 1});
                    this.#drawHead();
                    this.head.querySelector(`[data-sort="${CSS.escape(column.sort)}"]`)?.focus();
                }, "data-sort": column.sort}, column.label));
        };
        const all = this.options.actions ? h("th", {scope: "col", class: "box"}, this.all = h("input", {
            type: "checkbox", "aria-label": "Choose all rows that are shown", onchange: event => {
                this.chosen = new Set(event.target.checked ? this.rows.map(this.options.key) : []);
                this.#draw();
            },
        })) : null;
        replace(this.head, h("tr", null, all, this.#columns().map(cell)));
    }

    #draw() {
        const {options, answer, rows} = this;
        const columns = this.#columns();
        const kept = new Map();
        const present = new Set(rows.map(options.key));
        for (const key of [...this.chosen]) if (!present.has(key)) this.chosen.delete(key);
        let before = null;
        for (const row of rows) {
            const key = options.key(row);
            const entry = this.bodies.get(key) ?? {row, tr: this.#newRow(key)};
            entry.row = row;
            this.#fillRow(entry, key, columns);
            kept.set(key, entry);
            const wanted = before ? before.nextSibling : this.body.firstChild;
            if (wanted !== entry.tr) this.body.insertBefore(entry.tr, wanted);
            before = entry.tr;
        }
        for (const [key, {tr}] of this.bodies) if (!kept.has(key)) tr.remove();
        this.bodies = kept;
        const from = (answer.page - 1) * this.state.size;
        const of = answer.filtered_count === answer.total_count ? number(answer.total_count)
            : `${number(answer.filtered_count)} (of ${number(answer.total_count)})`;
        const counted = rows.length === answer.filtered_count ? of : `${number(from + 1)}\u2013${number(from + rows.length)} of ${of}`;
        if (this.counter.textContent !== counted) this.counter.textContent = counted;
        this.nothing.hidden = rows.length > 0;
        replace(this.nothing, this.state.name ? "Nothing matches the filter." : options.empty);
        this.#drawPager();
        this.#drawBulk();
    }

    #newRow(key) {
        return h("tr", {onclick: event => {
            if (event.target.closest("a, button, input, label, summary")) return;
            this.currentKey = key;
            for (const [other, {tr}] of this.bodies) tr.classList.toggle("current", other === key);
        }, ondblclick: () => this.open()});
    }

    #fillRow(entry, key, columns) {
        const {tr, row} = entry;
        const cells = columns.map((column, index) => {
            const content = column.cell ? column.cell(row) : row[column.key];
            const kind = column.numeric ? "numeric" : null;
            return h(index === 0 ? "th" : "td", {class: kind, scope: index === 0 ? "row" : null}, content);
        });
        if (this.options.actions) {
            let box = tr.querySelector("input[data-choose]");
            if (!box) {
                box = h("input", {type: "checkbox", "data-choose": true, "aria-label": "Choose this row", onchange: event => {
                    if (event.target.checked) this.chosen.add(key);
                    else this.chosen.delete(key);
                    this.#drawBulk();
                    tr.classList.toggle("chosen", event.target.checked);
                }});
                tr.append(h("td", {class: "box"}, box));
            }
            box.checked = this.chosen.has(key);
        }
        tr.classList.toggle("chosen", this.chosen.has(key));
        tr.classList.toggle("current", key === this.currentKey);
        const first = this.options.actions ? 1 : 0;
        cells.forEach((cell, index) => {
            const old = tr.children[index + first];
            if (!old) tr.append(cell);
            else if (!old.isEqualNode(cell)) old.replaceWith(cell);
        });
    }

    #drawPager() {
        const {page, page_count: pages} = this.answer;
        const step = (to, label, title) => h("button", {
            type: "button", disabled: to < 1 || to > pages || to === page, title, "aria-label": title,
            onclick: () => this.#set({page: to}),
        }, label);
        const sizes = h("select", {
            "aria-label": "Rows on a page", value: String(this.state.size), onchange: event => {
                localStorage.setItem("gomq.size", event.target.value);
                this.#set({size: Number(event.target.value), page: 1});
            },
        }, SIZES.map(size => h("option", {value: String(size)}, `${size} rows`)));
        const wanted = this.answer.filtered_count > SIZES[0] ? [
            step(1, "\u00ab", "First page"), step(page - 1, "\u2039", "Page before"),
            h("span", null, `Page ${number(page)} of ${number(pages)}`),
            step(page + 1, "\u203a", "Next page"), step(pages, "\u00bb", "Last page"), sizes,
        ] : [];
        const state = JSON.stringify([page, pages, this.state.size, wanted.length]);
        if (this.pagerState === state) return;
        this.pagerState = state;
        replace(this.pager, wanted);
    }

    #drawBulk() {
        if (!this.options.actions) return;
        const rows = this.selection;
        this.all.checked = rows.length > 0 && rows.length === this.rows.length;
        this.all.indeterminate = rows.length > 0 && rows.length < this.rows.length;
        this.bulk.hidden = rows.length === 0;
        const usable = this.options.actions.filter(action => !action.needs || rows.every(action.needs));
        const state = `${rows.length} ${usable.map(one => one.label)}`;
        if (this.bulkState === state) return;
        this.bulkState = state;
        replace(this.bulk, h("span", null, `${number(rows.length)} chosen`), usable.map(action => h("button", {
            type: "button", class: action.kind, onclick: async () => {
                try {
                    await action.run(this.selection);
                } catch (error) {
                    this.context.fail(error);
                }
                await this.refresh();
            },
        }, action.label)));
    }

    #tellFilter(reason) {
        const text = reason ? `not a pattern: ${reason}` : "";
        if (this.filterFault.textContent !== text) this.filterFault.textContent = text;
        this.filter.toggleAttribute("aria-invalid", Boolean(reason));
    }
}
