// The description of the HTTP API: the colours chosen in the page, and the filter. Without it everything is shown.

const theme = localStorage.getItem("gomq.theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;

const filter = document.getElementById("filter"), found = document.getElementById("found");
const articles = [...document.querySelectorAll("article")].map(element => [element, element.textContent.toLowerCase()]);
const headings = [...document.querySelectorAll("section, section > h3")];

function choose() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const [element, text] of articles) {
        element.hidden = !words.every(word => text.includes(word));
        count += !element.hidden;
    }
    for (const heading of headings) heading.hidden = !hasShown(heading);
    found.textContent = words.length ? `${count} found` : "";
}

// A section has its articles inside; those of a heading within a section stand behind it.
function hasShown(heading) {
    if (heading.tagName === "SECTION") return heading.querySelector("article:not([hidden])") !== null;
    for (let next = heading.nextElementSibling; next?.tagName === "ARTICLE"; next = next.nextElementSibling) if (!next.hidden) return true;
    return false;
}

filter.closest(".find").hidden = false;
filter.addEventListener("input", choose);
if (filter.value) choose();
