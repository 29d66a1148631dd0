// The topology as a drawing: exchanges, queues and consumers in columns, an edge for what leads from one to another.

import {s, visible} from "../core/dom.js";
import {link} from "../core/router.js";

const WIDTH = 190, HEIGHT = 38, GAP_X = 90, GAP_Y = 12, MARGIN = 12;
const MOST_CHARACTERS = 22;
const MOST_DEPTH = 3;

export const key = (kind, name) => `${kind}\n${name}`;
export const edgeId = (from, to) => JSON.stringify([from, to]);

/**
 * nodes: [{kind: "exchange" | "queue" | "consumer", name, label, note, href}], edges: [{from, to, label}] by key(). hits:
 * {nodes: Set, edges: Set of edgeId()} are lit, or null.
 */
export function drawing(nodes, edges, hits) {
    const columns = inColumns(nodes, edges);
    const places = placed(columns, edges);
    const width = MARGIN * 2 + columns.length * WIDTH + Math.max(0, columns.length - 1) * GAP_X;
    const height = MARGIN * 2 + Math.max(1, ...columns.map(column => column.length)) * (HEIGHT + GAP_Y);
    return s("svg", {viewBox: `0 0 ${width} ${height}`, width: String(width), height: String(height), role: "group", "aria-label": "Topology"},
        edges.filter(one => places.has(one.from) && places.has(one.to)).map(one => edge(one, places, hits)),
        nodes.filter(one => places.has(one.key)).map(one => box(one, places.get(one.key), hits)));
}

function inColumns(nodes, edges) {
    const depth = new Map(nodes.filter(one => one.kind === "exchange").map(one => [one.key, 0]));
    for (let round = 0; round < MOST_DEPTH; round++) {
        for (const {from, to} of edges) {
            if (depth.has(from) && depth.has(to) && from !== to) depth.set(to, Math.min(MOST_DEPTH - 1, Math.max(depth.get(to), depth.get(from) + 1)));
        }
    }
    const exchanges = Math.max(0, ...depth.values()) + 1;
    const columns = Array.from({length: exchanges + 2}, () => []);
    for (const one of nodes) columns[one.kind === "exchange" ? depth.get(one.key) : exchanges + (one.kind === "queue" ? 0 : 1)].push(one);
    return columns.filter(column => column.length);
}

// Each column in the order of where its edges come from, so that few cross.
function placed(columns, edges) {
    const places = new Map();
    columns.forEach((column, number) => {
        const from = new Map(column.map(one => [one.key, []]));
        for (const one of edges) if (from.has(one.to) && places.has(one.from)) from.get(one.to).push(places.get(one.from).y);
        const middle = ({key: of}) => from.get(of).length ? from.get(of).reduce((sum, y) => sum + y, 0) / from.get(of).length : Infinity;
        const sorted = [...column].sort((a, b) => {
            const [x, y] = [middle(a), middle(b)];
            return x === y ? a.name.localeCompare(b.name) : x - y;
        });
        sorted.forEach((one, row) => places.set(one.key, {x: MARGIN + number * (WIDTH + GAP_X), y: MARGIN + row * (HEIGHT + GAP_Y)}));
    });
    return places;
}

function edge({from, to, label}, places, hits) {
    const a = places.get(from), b = places.get(to);
    const [x, y, x2, y2] = [a.x + WIDTH, a.y + HEIGHT / 2, b.x, b.y + HEIGHT / 2];
    // To the same column or back: around.
    const bend = x2 > x ? (x2 - x) / 2 : GAP_X;
    const kind = !hits ? "edge" : hits.edges.has(edgeId(from, to)) ? "edge hit" : "edge dim";
    return s("path", {class: kind, d: `M${x} ${y} C${x + bend} ${y} ${x2 - bend} ${y2} ${x2} ${y2}`}, s("title", null, visible(label)));
}

function box({kind, label, note, href, key: of}, {x, y}, hits) {
    const text = visible(label);
    const shape = s("g", {class: !hits ? "box" : hits.nodes.has(of) ? "box hit" : "box dim", transform: `translate(${x} ${y})`},
        s("rect", {width: String(WIDTH), height: String(HEIGHT), rx: kind === "exchange" ? "19" : "5"}),
        s("text", {x: "12", y: "17"}, text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS - 1)}\u2026` : text), " ",
        s("text", {class: "kind", x: "12", y: "30"}, note), s("title", null, `${kind} ${text}: ${note}`));
    return href ? s("a", {href, "aria-label": `${kind} ${text} ${note}`}, shape) : shape;
}

export const hrefOf = (kind, vhost, name) => link(kind === "exchange" ? "exchanges" : "queues", vhost, name);
