// The login view: shown in the place of every page while nobody is logged in.

import {get} from "../core/api.js";
import {h, name, replace} from "../core/dom.js";
import {logIn} from "../core/session.js";

export const title = () => "Log in";

/** done() is called once somebody has logged in; notice says why they have to. */
export async function show(root, {notice, done}) {
    const fault = h("p", {class: "fault", role: "alert"}, notice ?? null);
    const user = h("input", {name: "username", autocomplete: "username", required: true, autocapitalize: "off", spellcheck: "false"});
    const password = h("input", {name: "password", type: "password", autocomplete: "current-password"});
    const button = h("button", {type: "submit", class: "primary"}, "Log in");
    const others = h("div", {class: "others"});
    const form = h("form", {class: "login panel", onsubmit: async event => {
        event.preventDefault();
        button.disabled = true;
        replace(fault);
        try {
            await logIn(user.value, password.value);
            done();
        } catch (error) {
            replace(fault, error.status === 401 && error.reason === "Login failed"
                ? "Wrong name or password." : error.reason ?? error.message);
            password.select();
        } finally {
            button.disabled = false;
        }
    }}, h("h1", null, "Log in"), h("label", {class: "field"}, h("span", {class: "label"}, "Name"), user),
    h("label", {class: "field"}, h("span", {class: "label"}, "Password"), password), fault, button, others);
    replace(root, form);
    user.focus();
    const auth = await get("auth").catch(() => null);
    if (!auth?.oauth_enabled || !form.isConnected) return;
    replace(others, h("button", {type: "button", onclick: async () => {
        replace(fault);
        try {
            await (await import("../core/sign_on.js")).leave(auth);
        } catch (error) {
            replace(fault, error.message);
        }
    }}, "Log in with ", name(new URL(auth.oauth_provider_url).host)));
}
