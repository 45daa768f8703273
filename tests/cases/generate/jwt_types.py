#!/usr/bin/env python3
"""Writes tests/cases/jwt-types.yaml: tokens by Python's own hmac, one for each `typ`. Run it from anywhere."""

import base64
import hashlib
import hmac
import json
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "jwt-types.yaml"
SECRET = b"a secret of more than 32 bytes, for types"
ISSUER = "https://typed.example.com"


def encode(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def token(header):
    claims = {"iss": ISSUER, "exp": 4102444800}
    parts = [encode(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims)]
    text = ".".join(parts)
    return f"{text}.{encode(hmac.new(SECRET, text.encode(), hashlib.sha256).digest())}"


def case(note, typ, reason=None, params=None):
    header = {"alg": "HS256"} if typ is None else {"alg": "HS256", "typ": typ}
    chain = {"request": [{"policy": "jwtValidation", "params": {"issuers": ["typed"], **(params or {})}}]}
    request = {"headers": [["authorization", f"Bearer {token(header)}"]]}
    want = {"verdict": "allow", "status": 200}
    if reason:
        want = {"verdict": "deny", "status": 401, "step": "jwtValidation", "reason": reason}
    return {"note": note, "chain": chain, "request": request, "want": want}


ACCESS = {"typ": ["at+jwt"]}
CASES = [
    case("admits a token without a type", None),
    case("admits a JWT", "JWT"),
    case("admits an access token of RFC 9068", "at+jwt"),
    case("admits types in any case", "AT+Jwt"),
    case("admits the whole media type", "application/at+JWT"),
    case("refuses a token for another use", "logout+jwt", "type_refused"),
    case("refuses another media type", "text/jwt", "type_refused"),
    case("refuses a type that only starts alike", "JWTx", "type_refused"),
    case("refuses the word that stands for no type", "none", "type_refused"),
    case("refuses a type that is empty", "", "token_malformed"),
    case("refuses a media type without a name", "application/", "token_malformed"),
    case("refuses a type that is no text", 1, "token_malformed"),
    case("refuses a type that is a list", ["JWT"], "token_malformed"),
    case("admits the type that it is told", "secevent+jwt", None, {"typ": ["application/SecEvent+JWT"]}),
    case("refuses what is left out", "JWT", "type_refused", ACCESS),
    case("refuses no type where one is asked for", None, "type_refused", ACCESS),
    case("admits no type where that is listed", None, None, {"typ": ["none", "at+jwt"]}),
]
REFUSALS = [
    {"note": "a type is a media type", "chain": {"request": [{"policy": "jwtValidation", "params": {"issuers": ["typed"], "typ": ["a b"]}}]},
     "says": "`typ`: expected media types such as `at+jwt`, or `none`"},
]


def main():
    issuer = {"apiVersion": "postern/v1", "kind": "Issuer", "metadata": {"name": "typed"},
              "spec": {"issuer": ISSUER, "jwks": {"keys": [{"kty": "oct", "k": encode(SECRET)}]}}}
    lines = ["# Made by generate/jwt_types.py. Change that, not this.",
             'about: "jwtValidation: what a token says it is for (RFC 8725, section 3.11)"', "resources:",
             f"  - {json.dumps(issuer)}", "cases:"]
    for entry in CASES:
        fields = [f"{name}: {json.dumps(entry[name])}" for name in ("note", "chain", "request", "want")]
        lines += ["  - " + fields[0]] + ["    " + field for field in fields[1:]]
    lines.append("refusals:")
    for entry in REFUSALS:
        fields = [f"{name}: {json.dumps(entry[name])}" for name in ("note", "chain", "says")]
        lines += ["  - " + fields[0]] + ["    " + field for field in fields[1:]]
    FILE.write_text("\n".join(lines) + "\n")


main()
