// The log as it is written: the last lines and each new one, chosen by level and by what they say.

import {stream} from "../core/api.js";
import {badge, h, replace, visible} from "../core/dom.js";
import {count, time} from "../core/format.js";
import {addStyle} from "../core/style.js";

// Lines that are kept here; the broker keeps as many.
const LINES = 1000;
const LEVELS = ["debug", "info", "warn", "error", "fatal"];
// As far from the end as this the view stays where it is.
const AT_END_PX = 40;

export const title = () => "Log";

export async function show(root, params, context) {
    await addStyle("operations");
    const lines = [];
    let isHeld = false, missed = 0;
    const view = h("div", {class: "log", role: "log", tabindex: "0", "aria-label": "Lines of the log", "aria-live": "off"});
    const state = h("span", {role: "status"}, badge("connecting"));
    const level = h("select", {"aria-label": "Least level", value: context.query.level ?? "debug", onchange: () => choose()},
        LEVELS.map(one => h("option", {value: one}, one === "debug" ? "all levels" : `${one} and worse`)));
    const text = h("input", {
        type: "search", class: "filter", placeholder: "Filter", "aria-label": "Filter lines", value: context.query.text ?? "",
        oninput: () => choose(), spellcheck: "false", autocomplete: "off",
    });
    const hold = h("button", {type: "button", "aria-pressed": "false", onclick: () => {
        isHeld = !isHeld;
        hold.setAttribute("aria-pressed", String(isHeld));
        if (!isHeld) draw();
        tellHeld();
    }}, "Hold");
    const clear = h("button", {type: "button", onclick: () => {
        lines.length = 0;
        draw();
    }}, "Clear");

    const fits = line => LEVELS.indexOf(line.level) >= LEVELS.indexOf(level.value)
        && (!text.value || `${line.source}: ${line.message}`.toLowerCase().includes(text.value.toLowerCase()));
    const element = line => h("div", {class: `log-line ${line.level}`, "data-number": line.number},
        h("time", {datetime: new Date(line.at).toISOString()}, time(line.at)), h("span", {class: "level"}, line.level),
        h("span", {class: "source"}, line.source), h("bdi", {class: "what", dir: "auto"}, multiline(line.message)));
    const isAtEnd = () => view.scrollHeight - view.scrollTop - view.clientHeight < AT_END_PX;
    const toEnd = () => {
        view.scrollTop = view.scrollHeight;
    };
    const draw = () => {
        missed = 0;
        replace(view, lines.filter(fits).map(element));
        toEnd();
        tellHeld();
    };
    const tellHeld = () => replace(hold, isHeld && missed ? `Go on (${count(missed, "new line")})` : isHeld ? "Go on" : "Hold");
    const choose = () => {
        context.setQuery({level: level.value === "debug" ? null : level.value, text: text.value});
        draw();
    };

    root.append(h("div", {class: "head"}, h("h1", null, "Log"), state),
        h("div", {class: "row"}, text, level, hold, clear), view);
    draw();
    await new Promise(resolve => {
        context.signal.addEventListener("abort", resolve);
        stream("log", {
            open() {
                replace(state, badge("live", "good"));
                resolve();
            },
            error() {
                replace(state, badge("not connected", "bad"));
                resolve();
            },
            message(line) {
                if (lines.length && line.number <= lines.at(-1).number) lines.length = 0; // of a new run
                lines.push(line);
                if (lines.length > LINES) lines.shift();
                if (isHeld) {
                    missed++;
                    tellHeld();
                } else if (fits(line)) {
                    const follows = isAtEnd();
                    view.append(element(line));
                    while (view.childElementCount > LINES) view.firstChild.remove();
                    if (follows) toEnd();
                }
            },
        }, {signal: context.signal, query: {last: 500}});
    });
}

// A traceback has lines of its own; whatever else cannot be seen is made visible.
function multiline(message) {
    return message.split("\n").map(visible).join("\n");
}
