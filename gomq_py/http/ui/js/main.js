// The page: who is logged in, the frame around the pages, and the keys that work everywhere.

import {connect, get, watchForSilence} from "./core/api.js";
import {h, name, replace, s, visible} from "./core/dom.js";
import {time} from "./core/format.js";
import {chooseRefresh, chooseVhost, chosenVhost, keptRefresh, lists, show, start, stop} from "./core/router.js";
import {logOut, resume, session} from "./core/session.js";
import {PAGES} from "./pages/index.js";

const bar = document.getElementById("bar");
const nav = document.getElementById("nav");
const main = document.getElementById("main");
const THEMES = ["system", "light", "dark"];
const HELP = [["/docs", "HTTP API"], ["/docs#arguments-and-policy-keys", "Arguments"]];
let isOpen = false;

// the look

function keptTheme() {
    const kept = localStorage.getItem("gomq.theme");
    return THEMES.includes(kept) ? kept : "system";
}

function chooseTheme(theme) {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    localStorage.setItem("gomq.theme", theme);
}

function themeButton() {
    let theme = keptTheme();
    const signs = {system: "\u25d0", light: "\u2600", dark: "\u263e"};
    const button = h("button", {type: "button", class: "plain", onclick: () => {
        theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
        chooseTheme(theme);
        tell();
    }});
    const tell = () => {
        replace(button, signs[theme]);
        button.title = `Colours: ${theme}`;
        button.setAttribute("aria-label", button.title);
    };
    tell();
    return button;
}

// the frame

// icon.svg once more, which would be a request of its own.
function brand() {
    return h("a", {class: "brand", href: "#/"}, s("svg", {viewBox: "0 0 32 32", width: 22, height: 22, "aria-hidden": "true"},
        s("rect", {width: 32, height: 32, rx: 7, fill: "#0f766e"}), s("path", {d: "M7 10h18M7 16h12M7 22h6", stroke: "#fff", "stroke-width": 3.2,
            "stroke-linecap": "round"}), s("circle", {cx: 24, cy: 20, r: 3.4, fill: "#fbbf24"})), "gomq-py");
}

function drawBar() {
    replace(bar,
        h("button", {type: "button", class: "plain menu-button", "aria-label": "Menu", "aria-expanded": "false", onclick: event => {
            const open = document.body.classList.toggle("nav-open");
            event.currentTarget.setAttribute("aria-expanded", String(open));
        }}, "\u2630"),
        brand(),
        h("span", {class: "grow"}),
        vhostChoice(), h("button", {type: "button", class: "search", onclick: openPalette}, "Search ", h("kbd", null, "Ctrl K")),
        themeButton(),
        h("details", {class: "menu user"}, h("summary", {class: "button"}, name(session.name)),
            h("div", {class: "choices"}, h("p", {class: "quiet"}, session.tags.length ? session.tags.join(", ") : "no tags"), refreshChoice(),
                h("button", {type: "button", onclick: async () => {
                    await logOut();
                    await logInView();
                }}, "Log out"))));
}

function refreshChoice() {
    const choices = [["", "as usual"], ["1", "every second"], ["5", "every 5 s"], ["30", "every 30 s"], ["0", "only by hand (r)"]];
    return h("label", {class: "field"}, h("span", {class: "label"}, "Refresh"), h("select", {value: keptRefresh(), onchange: event => {
        chooseRefresh(event.target.value);
        show();
    }}, choices.map(([value, label]) => h("option", {value}, label))));
}

function vhostChoice() {
    const select = h("select", {"aria-label": "Virtual host", class: "vhost", onchange: () => chooseVhost(select.value)});
    const fill = vhosts => {
        const chosen = chosenVhost();
        const names = [...new Set([...vhosts, ...(chosen ? [chosen] : [])])];
        replace(select, h("option", {value: ""}, "All virtual hosts"), names.map(one => h("option", {value: one}, visible(one))));
        select.value = chosen;
    };
    fill(session.vhosts);
    select.addEventListener("focus", async () => {
        try {
            fill((await get("vhosts", {query: {columns: "name"}})).map(one => one.name));
        } catch { /* those of the login stay */ }
    });
    return select;
}

function drawNav({page}) {
    const groups = new Map();
    for (const one of PAGES) {
        if (!one.label || !session.can(one.tag)) continue;
        if (!groups.has(one.group)) groups.set(one.group, []);
        groups.get(one.group).push(one);
    }
    const shown = page?.path;
    const isHere = one => shown === one.path || one.path !== "/" && shown?.startsWith(one.path + "/");
    replace(nav, [...groups].map(([group, pages]) => [group ? h("h2", null, group) : null, h("ul", null, pages.map(one => h("li", null,
        h("a", {href: `#${one.path}`, "aria-current": isHere(one) ? "page" : null}, one.label))))]),
    h("h2", null, "Help"), h("ul", null, HELP.map(([href, label]) => h("li", null, h("a", {href, target: "_blank"}, label)))));
    document.body.classList.remove("nav-open");
    bar.querySelector(".menu-button")?.setAttribute("aria-expanded", "false");
}

function tellReached(isReached, heardAt) {
    const banner = document.getElementById("banner");
    if (isReached) banner?.remove();
    else if (!banner) main.before(h("div", {id: "banner", class: "failure", role: "alert"},
        `The broker does not answer. The figures are from ${time(heardAt)}. Trying again\u2026`));
}

async function openPalette() {
    const {open} = await import("./core/palette.js");
    open(PAGES);
}

// in and out

function enter() {
    isOpen = true;
    document.body.classList.remove("out");
    drawBar();
    start(PAGES, main, drawNav);
}

async function logInView(notice) {
    isOpen = false;
    stop();
    document.body.classList.add("out");
    document.querySelectorAll("dialog").forEach(dialog => dialog.close());
    replace(bar, brand(),
        h("span", {class: "grow"}), themeButton());
    replace(nav);
    document.title = "Log in - gomq-py";
    const {show: showLogin} = await import("./pages/login.js");
    await showLogin(main, {notice, done: enter});
}

function isTyping(target) {
    return target.closest("input, select, textarea, [contenteditable]") !== null;
}

async function key(event) {
    if (!isOpen || document.querySelector("dialog[open]")) return;
    const isPalette = event.key === "k" && (event.ctrlKey || event.metaKey);
    if (isPalette || event.key === "/" && !isTyping(event.target)) {
        event.preventDefault();
        await openPalette();
        return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key === "?") {
        const {help} = await import("./core/palette.js");
        help();
        return;
    }
    if (!["j", "k", "x", "Enter", "r"].includes(event.key)) return;
    if (event.key === "r") {
        show();
        return;
    }
    const table = lists.shown;
    if (!table?.element.isConnected) return;
    if (event.key === "j") table.move(1);
    else if (event.key === "k") table.move(-1);
    else if (event.key === "x") table.toggle();
    else if (!event.target.closest("a, button, summary")) table.open();
}

document.addEventListener("keydown", key);
document.getElementById("skip").addEventListener("click", event => {
    event.preventDefault(); // the address is the page's
    main.focus();
});
document.addEventListener("click", event => {
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});

connect({ended: () => isOpen && logInView("The session has ended."), reached: tellReached});
watchForSilence(() => isOpen);

chooseTheme(keptTheme());

// The issuer of tokens sends people back here.
async function comeBack() {
    const {finish} = await import("./core/sign_on.js");
    try {
        if (await finish(() => get("auth"))) return enter();
    } catch (error) {
        return logInView(error.reason ?? error.message);
    }
    return logInView();
}

async function boot() {
    try {
        if (/[?&]state=/.test(location.search) && /[?&](code|error)=/.test(location.search)) await comeBack();
        else if (await resume()) enter();
        else await logInView();
    } catch {
        setTimeout(boot, 2000); // the broker does not answer: the banner says so
    }
}

boot();
