// Numbers, octets, durations, dates and rates as people read them.

const NUMBER = new Intl.NumberFormat("en-GB");
const SHORT = new Intl.NumberFormat("en-GB", {notation: "compact", maximumFractionDigits: 1});
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const NONE = "\u2013";

const isNone = value => value === null || value === undefined || Number.isNaN(value);

/** 12 345 as 12,345. */
export function number(value) {
    return isNone(value) ? NONE : NUMBER.format(value);
}

/** 12 345 as 12.3K. */
export function short(value) {
    return isNone(value) ? NONE : value < 10000 ? NUMBER.format(Math.round(value * 100) / 100) : SHORT.format(value);
}

/** 1536 as 1.5 KiB. */
export function octets(value) {
    if (isNone(value)) return NONE;
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
        value /= 1024;
        unit++;
    }
    return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

/** Per second: 12.34 as 12.3/s. */
export function rate(value) {
    if (isNone(value)) return NONE;
    return `${value && value < 10 ? value.toFixed(1) : short(Math.round(value))}/s`;
}

/** Octets per second. */
export function octetRate(value) {
    return isNone(value) ? NONE : `${octets(value)}/s`;
}

/** Seconds as 2 d 3 h, 4 min 5 s, 0.5 s. */
export function duration(seconds) {
    if (isNone(seconds)) return NONE;
    if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
    seconds = Math.floor(seconds);
    const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
    const first = parts.findIndex(([size]) => seconds >= size);
    return parts.slice(first, first + 2).map(([size, unit]) => {
        const count = Math.floor(seconds / size);
        seconds -= count * size;
        return count ? `${count} ${unit}` : "";
    }).filter(Boolean).join(" ");
}

/** How long ago a time in Unix milliseconds was. */
export function ago(ms, now = Date.now()) {
    return isNone(ms) ? NONE : duration(Math.max(0, (now - ms) / 1000));
}

/** A time in Unix milliseconds as 2026-03-01 12:34:56. */
export function time(ms) {
    if (isNone(ms)) return NONE;
    const date = new Date(ms);
    const two = value => String(value).padStart(2, "0");
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
        `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** 0.123 as 12 %. */
export function percent(value) {
    return isNone(value) ? NONE : `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;
}

/** "1 queue", "2 queues". */
export function count(value, one, many = one + "s") {
    return `${number(value)} ${value === 1 ? one : many}`;
}
