"""A token issuer on this machine: serves its discovery document and key set,
and signs tokens with any claims.
"""
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa


class TokenIssuer:
    """``url`` is the issuer; ``token(**claims)`` a signed token.

    ``fetches`` counts the paths that were asked for. A context manager.
    """

    def __init__(self, audience="gomq"):
        self.audience = audience
        self.private_keys = {}
        self.fetches = []
        self.headers = {}
        self.broken = False
        self.add_key("rsa-1", rsa.generate_private_key(public_exponent=65537, key_size=2048))
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                issuer.answer(self)

            def do_POST(self):
                issuer.take(self)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/realm"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def add_key(self, kid, key):
        self.private_keys[kid] = key

    def add_elliptic_key(self, kid):
        self.add_key(kid, ec.generate_private_key(ec.SECP256R1()))

    def jwks(self):
        """The key set as a dict."""
        return {
            "keys": [
                {**self._algorithm(key).to_jwk(key.public_key(), as_dict=True), "kid": kid}
                for kid, key in self.private_keys.items()
            ],
        }

    def token(self, kid="rsa-1", lifetime_s=600, key=None, headers=None, algorithm=None, **claims):
        """A token; a claim that is None is left out."""
        key = key or self.private_keys[kid]
        payload = {
            "iss": self.url, "aud": self.audience, "exp": time.time() + lifetime_s, "sub": "ann", **claims
        }
        payload = {name: value for name, value in payload.items() if value is not None}
        algorithm = algorithm or ("RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256")
        return jwt.encode(
            payload, key, algorithm=algorithm, headers={"kid": kid} if headers is None else headers
        )

    def documents(self):
        """What it serves, by path."""
        return {
            "/realm/.well-known/openid-configuration": {
                "issuer": self.url, "jwks_uri": self.url.replace("/realm", "/keys")
            },
            "/keys": self.jwks(),
        }

    def take(self, request):
        """A POST, of which this issuer knows none."""
        request.send_error(404)

    def answer(self, request):
        self.fetches.append(request.path)
        document = self.documents().get(request.path)
        octets = json.dumps(document).encode()
        request.send_response(503 if self.broken else 404 if document is None else 200)
        for name, value in {**self.headers, "Content-Length": str(len(octets))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(octets)

    @staticmethod
    def _algorithm(key):
        return (
            jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        )
