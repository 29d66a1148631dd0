// Login at an issuer of tokens: the authorization code flow with PKCE (RFC 6749, RFC 7636). The broker only
// ever sees the token; what a stranger could send back is held against a state that this browser made.

import {logInWithToken} from "./session.js";

const KEPT = "gomq.sign_on";
const VERIFIER_OCTETS = 32;

/** Go to the issuer that /api/auth names. Raises Error where that cannot be. */
export async function leave(auth) {
    if (!crypto.subtle) throw new Error("Login at the issuer of tokens needs HTTPS, or a browser on the broker's machine.");
    const issuer = await discovered(auth);
    const endpoint = new URL(issuer.authorization_endpoint);
    if (!/^https?:$/.test(endpoint.protocol)) throw new Error("The issuer of tokens names no login page.");
    const verifier = random(), state = random();
    const redirect = redirectOf(auth);
    sessionStorage.setItem(KEPT, JSON.stringify({verifier, state, redirect, hash: location.hash}));
    const challenge = text(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
    const query = {
        response_type: "code", client_id: auth.oauth_client_id, redirect_uri: redirect, scope: auth.oauth_scopes || "openid", state,
        code_challenge: challenge, code_challenge_method: "S256",
    };
    for (const [key, value] of Object.entries(query)) endpoint.searchParams.set(key, value);
    location.assign(endpoint.href);
}

/** Log in with the issuer's answer; the address is as it was before. Raises Error or ApiError. */
export async function finish(getAuth) {
    const query = new URLSearchParams(location.search);
    const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
    sessionStorage.removeItem(KEPT);
    history.replaceState(null, "", location.pathname + (kept?.hash ?? ""));
    if (!kept || query.get("state") !== kept.state) throw new Error("This login was not begun in this browser.");
    if (query.has("error")) throw new Error(`The issuer of tokens refused: ${query.get("error_description") ?? query.get("error")}`);
    const auth = await getAuth();
    const issuer = await discovered(auth);
    const answer = await fetched(issuer.token_endpoint, {
        method: "POST", headers: {"Content-Type": "application/x-www-form-urlencoded"},
        body: new URLSearchParams({
            grant_type: "authorization_code", code: query.get("code"), redirect_uri: kept.redirect, client_id: auth.oauth_client_id,
            code_verifier: kept.verifier,
        }),
    });
    if (typeof answer.access_token !== "string") throw new Error("The issuer of tokens sent no token.");
    return logInWithToken(answer.access_token);
}

function redirectOf(auth) {
    return auth.oauth_redirect_url || `${location.origin}/`;
}

async function discovered(auth) {
    const provider = auth.oauth_provider_url.replace(/\/$/, "");
    const document = await fetched(`${provider}/.well-known/openid-configuration`);
    // OpenID Connect Discovery 1.0, 4.3: what another issuer says of itself is not this one's word.
    if (typeof document?.issuer !== "string" || document.issuer.replace(/\/$/, "") !== provider)
        throw new Error("The discovery document of the issuer of tokens is of another issuer.");
    return document;
}

async function fetched(address, options) {
    let response;
    try {
        response = await fetch(address, {credentials: "omit", referrerPolicy: "no-referrer", ...options});
    } catch {
        throw new Error("The issuer of tokens does not answer, or does not let this page ask it.");
    }
    if (!response.ok) throw new Error(`The issuer of tokens answers ${response.status}.`);
    return response.json();
}

function random() {
    return text(crypto.getRandomValues(new Uint8Array(VERIFIER_OCTETS)));
}

// base64url without padding
function text(octets) {
    return btoa(String.fromCharCode(...octets)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
