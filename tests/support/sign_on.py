"""An issuer of tokens where people log in with a browser: the authorization code flow with PKCE (RFC 6749
§4.1, RFC 7636). Whoever comes is let in as ``claims`` say.
"""
import base64
import hashlib
import json
import secrets
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.support.token_issuer import TokenIssuer


class SignOn(TokenIssuer):
    """``claims`` of the tokens; ``refusals``: what was wrong with requests, so that a test can say it was
    nothing.
    """

    def __init__(self, client_id, **claims):
        super().__init__()
        self.client_id = client_id
        self.claims = claims
        self.refusals = []
        self.headers = {"Access-Control-Allow-Origin": "*"}
        self._codes = {}

    def documents(self):
        found = super().documents()
        found["/realm/.well-known/openid-configuration"] |= {
            "authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token"}
        return found

    def answer(self, request):
        """A GET; of the login page it is the way back with a code."""
        parts = urlsplit(request.path)
        if parts.path != "/realm/authorize":
            super().answer(request)
            return
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if asked.get("client_id") != self.client_id or asked.get("code_challenge_method") != "S256":
            self.refusals.append(asked)
        code = secrets.token_urlsafe()
        self._codes[code] = asked
        request.send_response(302)
        request.send_header(
            "Location", f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}")
        request.send_header("Content-Length", "0")
        request.end_headers()

    def take(self, request):
        """The change of a code for a token."""
        form = parse_qs(request.rfile.read(int(request.headers["Content-Length"])).decode())
        given = {key: values[0] for key, values in form.items()}
        asked = self._codes.pop(given.get("code"), {})
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        is_right = asked.get("code_challenge") == challenge and all(
            asked.get(key) == given.get(key) for key in ("client_id", "redirect_uri"))
        if not is_right:
            self.refusals.append(given)
        answer = {"access_token": self.token(**self.claims), "token_type": "Bearer"} if is_right else {}
        octets = json.dumps(answer).encode()
        request.send_response(200 if is_right else 400)
        for name, value in {**self.headers, "Content-Length": str(len(octets))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(octets)
