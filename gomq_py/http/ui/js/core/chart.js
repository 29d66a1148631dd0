// Curves over time, as SVG: colours are the stylesheet's, a table of the same numbers stands behind.
//
//     const chart = lineChart({title: "Messages", unit: number, seconds: 600,
//                              series: [{label: "Ready", points: [[unix ms, value], ...]}]});
//     root.append(chart.element);         chart.update([{label, points}, ...], seconds)
//     curve(details)       points of lengths of the API's ..._details with samples, oldest first
//     rates(details)       points of what a counter moved in each second
//     rangeChoice(context, chosen)      buttons for the span;  samplesQuery(seconds)   what asks the API for it
//     figures([[label, value, href]...])     numbers that stand above charts
//
// However many points there are, at most one for each pixel is drawn: the highest of it, so that no peak is
// lost. A day of samples takes a millisecond.

import {h, replace, s} from "./dom.js";
import {number, time} from "./format.js";

const HEIGHT = 150;
const LEFT_MIN = 44;
const TICK_WIDTH = 7; // how wide a character of a tick is at most, in pixels
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
const STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
const ROWS_SHOWN = 60;

/** Points of a ..._details object: [[ms, value], ...], oldest first. */
export function curve(details) {
    return (details?.samples ?? []).map(one => [one.timestamp, one.sample]).reverse();
}

/** What a counter moved each second between its samples. */
export function rates(details) {
    const points = curve(details);
    const found = [];
    for (let index = 1; index < points.length; index++) {
        const [[before, from], [at, to]] = [points[index - 1], points[index]];
        if (at > before) found.push([at, Math.max(0, (to - from) * 1000 / (at - before))]);
    }
    return found;
}

export function lineChart(options) {
    return new LineChart(options);
}

class LineChart {
    constructor({title, series = [], unit = number, seconds = 600}) {
        Object.assign(this, {title, unit, seconds, series, width: 0, hoverAt: null});
        this.legend = h("ul", {class: "legend"});
        this.svg = s("svg", {class: "plot", role: "img", height: HEIGHT, width: "100%",
            onpointermove: event => this.#hover(event), onpointerleave: () => this.#hover(null)});
        this.table = h("table", {class: "values"});
        this.details = h("details", {class: "behind", ontoggle: () => this.#drawTable()},
            h("summary", null, "Table"), h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": `Values of ${title}`}, this.table));
        this.element = h("figure", {class: "panel chart"},
            h("figcaption", {class: "head"}, h("h2", null, title), this.legend), this.svg, this.details);
        this.watch = new ResizeObserver(() => {
            const width = Math.round(this.svg.getBoundingClientRect().width);
            if (width && width !== this.width) {
                this.width = width;
                this.#draw();
            }
        });
        this.watch.observe(this.svg);
        this.#drawLegend();
    }

    /** Other points, and perhaps another span. */
    update(series, seconds = this.seconds) {
        this.series = series;
        this.seconds = seconds;
        this.#draw();
        this.#drawTable();
    }

    #drawLegend(at) {
        const valueOf = ({points}) => {
            const point = at === undefined ? points.at(-1) : nearest(points, at);
            return point ? this.unit(point[1]) : "\u2013";
        };
        replace(this.legend, this.series.map((one, index) => h("li", null,
            s("svg", {class: `key s${index + 1}`, width: 14, height: 8, "aria-hidden": "true"}, s("path", {d: "M0 4H14"})),
            `${one.label} `, h("b", null, valueOf(one)))));
    }

    #draw() {
        this.#drawLegend();
        if (!this.width) return;
        const end = Math.max(0, ...this.series.map(one => one.points.at(-1)?.[0] ?? 0)) || Date.now();
        const begin = end - this.seconds * 1000;
        const inside = this.series.map(one => one.points.filter(([at]) => at >= begin));
        const most = niceAbove(Math.max(0, ...inside.flatMap(points => points.map(point => point[1]))), this.unit);
        const marks = [0, .5, 1].map(part => most * part);
        const left = Math.max(LEFT_MIN, 10 + TICK_WIDTH * Math.max(...marks.map(mark => this.unit(mark).length)));
        const plotWidth = this.width - left - RIGHT, plotHeight = HEIGHT - TOP - BOTTOM;
        const x = at => left + (at - begin) / (end - begin) * plotWidth;
        const y = value => TOP + (1 - value / most) * plotHeight;
        Object.assign(this, {begin, end, left, x, y, inside});

        const lines = marks.map(mark => [s("path", {class: "grid-line", d: `M${left} ${y(mark)}H${this.width - RIGHT}`}),
            s("text", {class: "tick", x: left - 6, y: y(mark) + 4, "text-anchor": "end"}, this.unit(mark))]);
        const step = (STEPS_S.find(one => this.seconds / one <= Math.max(2, plotWidth / 110)) ?? 86400) * 1000;
        const offset = new Date(end).getTimezoneOffset() * 60000;
        const ticks = [];
        for (let at = Math.ceil((begin - offset) / step) * step + offset; at <= end; at += step) {
            if (x(at) > this.width - 24 || x(at) < left + 12) continue;
            ticks.push(s("text", {class: "tick", x: x(at), y: HEIGHT - 5, "text-anchor": "middle"},
                time(at).slice(11, step < 60000 ? 19 : 16)));
        }
        const paths = inside.map((points, index) => s("path", {class: `line s${index + 1}`, d: pathOf(points, x, y)}));
        const empty = inside.every(points => points.length < 2)
            ? s("text", {class: "tick", x: left + plotWidth / 2, y: TOP + plotHeight / 2, "text-anchor": "middle"}, "Collecting\u2026") : null;
        this.cross = s("path", {class: "cross"});
        this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
        this.svg.setAttribute("aria-label", `${this.title}: ${this.series.map(
            one => `${one.label} ${one.points.length ? this.unit(one.points.at(-1)[1]) : "unknown"}`).join(", ")}`);
        replace(this.svg, lines, ticks, paths, empty, this.cross);
        if (this.hoverAt !== null) this.#cross();
    }

    #hover(event) {
        if (!event || !this.x) {
            this.hoverAt = null;
            this.cross?.setAttribute("d", "");
            this.#drawLegend();
            return;
        }
        const place = event.clientX - this.svg.getBoundingClientRect().left;
        this.hoverAt = this.begin + (place - this.left) / (this.width - this.left - RIGHT) * (this.end - this.begin);
        this.#cross();
    }

    #cross() {
        const point = nearest(this.inside[0] ?? [], this.hoverAt);
        if (!point) return;
        this.cross.setAttribute("d", `M${this.x(point[0])} ${TOP}V${HEIGHT - BOTTOM}`);
        this.#drawLegend(point[0]);
        this.legend.prepend(h("li", {class: "quiet"}, time(point[0]).slice(11)));
    }

    #drawTable() {
        if (!this.details.open) return;
        const times = [...new Set(this.series.flatMap(one => one.points.map(point => point[0])))].sort((a, b) => b - a).slice(0, ROWS_SHOWN);
        const values = this.series.map(one => new Map(one.points));
        replace(this.table, h("thead", null, h("tr", null, h("th", {scope: "col"}, "Time"),
            this.series.map(one => h("th", {scope: "col", class: "numeric"}, one.label)))),
        h("tbody", null, times.map(at => h("tr", null, h("th", {scope: "row"}, time(at)),
            values.map(one => h("td", {class: "numeric"}, one.has(at) ? this.unit(one.get(at)) : "\u2013"))))));
    }
}

const RANGES = [[60, "1 min"], [600, "10 min"], [3600, "1 h"], [86400, "24 h"]];

/** Which span charts show: kept in the address. chosen(seconds) is told. */
export function rangeChoice(context, chosen) {
    const current = () => Number(context.query.range) || 600;
    const buttons = RANGES.map(([seconds, label]) => h("button", {
        type: "button", "aria-pressed": String(seconds === current()), onclick: () => {
            context.setQuery({range: seconds === 600 ? null : seconds});
            buttons.forEach((one, index) => one.setAttribute("aria-pressed", String(RANGES[index][0] === seconds)));
            chosen(seconds);
        },
    }, label));
    return {element: h("div", {class: "choice", role: "group", "aria-label": "Span of the charts"}, buttons), seconds: current};
}

/** What asks the API for the samples of a span: a point for each few pixels. */
export function samplesQuery(seconds) {
    const step = Math.max(1, Math.floor(seconds / 400));
    const query = {};
    for (const kind of ["lengths", "msg_rates", "data_rates", "node_stats"]) {
        query[`${kind}_age`] = seconds;
        query[`${kind}_incr`] = step;
    }
    return query;
}

/** Figures above everything else: [[label, value, href], ...]. */
export function figures(entries) {
    return h("div", {class: "numbers"}, entries.filter(Boolean).map(([label, value, href]) => href
        ? h("a", {href}, h("b", null, value), h("span", null, label)) : h("div", {class: "one"}, h("b", null, value), h("span", null, label))));
}

function nearest(points, at) {
    let best = null;
    for (const point of points) if (!best || Math.abs(point[0] - at) < Math.abs(best[0] - at)) best = point;
    return best;
}

// One point for each pixel: the highest.
function pathOf(points, x, y) {
    const columns = new Map();
    for (const point of points) {
        const pixel = Math.round(x(point[0]));
        const before = columns.get(pixel);
        if (!before || point[1] > before[1]) columns.set(pixel, point);
    }
    return [...columns.values()].map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
}

// The end of the axis: 1, 2 or 5 times a power of ten; of octets, of a power of two.
function niceAbove(value, unit) {
    if (String(unit(2048)).includes("KiB")) return 2 ** Math.ceil(Math.log2(Math.max(value, 4)));
    if (value <= 0) return 1;
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].map(step => step * power).find(step => step >= value * .999);
}
