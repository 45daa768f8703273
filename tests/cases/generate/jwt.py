"""Writes tests/cases/jwt-*.yaml: tokens for jwtValidation, made by PyJWT and cryptography, never by our own code.

Run it from the repository, in a virtual environment of its own:

    python3 -m venv venv && venv/bin/pip install pyjwt==2.15.1 cryptography==50.0.2
    venv/bin/python tests/cases/generate/jwt.py

The keys are in keys.json beside it. All is the same on every run but the signatures of PS256, which have a random salt.
Tokens expire in 2100 or have expired in 2001: Envoy's clock is the real one.
"""

import base64
import json
import os
import sys

sys.path = [entry for entry in sys.path if os.path.abspath(entry or ".") != os.path.dirname(os.path.abspath(__file__))]

import jwt  # PyJWT, not this file  # noqa: E402
from cryptography.hazmat.primitives import hashes, hmac, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec, padding, utils  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.dirname(HERE)
FUTURE = 4102444800  # 2100-01-01
PAST = 1000000000  # 2001-09-09
ISS = "https://accounts.example.com"
PARTNER = "https://partner.example.com"
SECRET = b"a shared secret of more than 32 bytes, for tests"

with open(os.path.join(HERE, "keys.json")) as file:
    KEYS = {
        name: serialization.load_pem_private_key(pem.encode(), None)
        for name, pem in json.load(file).items()
        if pem.startswith("-----")
    }


def b64(data):
    if isinstance(data, str):
        data = data.encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def number(value, size=None):
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def jwk(name, kid=None, **more):
    """The public key as a JSON Web Key."""
    key = KEYS[name].public_key()
    numbers = key.public_numbers() if hasattr(key, "public_numbers") else None
    if name.startswith("rsa"):
        members = {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
    elif name.startswith("p"):
        size, curve = {"p256": (32, "P-256"), "p384": (48, "P-384")}[name]
        members = {"kty": "EC", "crv": curve, "x": number(numbers.x, size), "y": number(numbers.y, size)}
    else:
        raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        members = {"kty": "OKP", "crv": "Ed25519", "x": b64(raw)}
    return {**members, **({"kid": kid} if kid else {}), **more}


def sign(alg, key, text):
    """The bytes of a signature, by cryptography: for headers and payloads that PyJWT would not write."""
    if alg == "HS256":
        code = hmac.HMAC(key, hashes.SHA256())
        code.update(text)
        return code.finalize()
    key = KEYS[key]
    digest = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}.get(alg[2:])
    if alg.startswith("RS"):
        return key.sign(text, padding.PKCS1v15(), digest)
    if alg.startswith("PS"):
        return key.sign(text, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
    if alg.startswith("ES"):
        r, s = utils.decode_dss_signature(key.sign(text, ec.ECDSA(digest, deterministic_signing=True)))
        size = (key.curve.key_size + 7) // 8
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")
    return key.sign(text)


def raw(header, payload, alg="RS256", key="rsa-1"):
    """A token of a header and a payload given as text or bytes, whatever they say."""
    text = f"{b64(header)}.{b64(payload)}"
    return f"{text}.{b64(sign(alg, key, text.encode()))}"


def token(claims=None, alg="RS256", key="rsa-1", kid="rsa-1", headers=None, drop=()):
    """A token by PyJWT: a good one, unless the arguments say otherwise."""
    everything = {"iss": ISS, "sub": "alice", "aud": "orders", "exp": FUTURE, **(claims or {})}
    everything = {name: value for name, value in everything.items() if name not in drop}
    headers = {**({"kid": kid} if kid is not None else {}), **(headers or {})}
    if alg in ("ES256", "ES384"):
        # PyJWT's signatures of ECDSA are random.
        return raw(compact({"alg": alg, "typ": "JWT", **headers}), compact(everything), alg, key)
    material = key if isinstance(key, bytes) else KEYS[key]
    return jwt.encode(everything, material, algorithm=alg, headers=headers)


CLAIMS = {"iss": ISS, "sub": "alice", "aud": "orders", "exp": FUTURE}
GOOD = token()
HEADER = compact({"alg": "RS256", "kid": "rsa-1", "typ": "JWT"})


def issuer(name, iss, keys, audiences=None, **more):
    spec = {"issuer": iss, **({"audiences": audiences} if audiences else {}), "jwks": {"keys": keys}, **more}
    return {"apiVersion": "postern/v1", "kind": "Issuer", "metadata": {"name": name}, "spec": spec}


ACCOUNTS = issuer(
    "accounts",
    ISS,
    [
        jwk("rsa-1", "rsa-1"),
        jwk("rsa-2", "rsa-2", alg="RS256"),
        jwk("p256", "p256"),
        jwk("p384", "p384"),
        jwk("ed25519", "ed25519"),
    ],
    ["orders", "billing"],
)
PARTNERS = issuer("partner", PARTNER, [jwk("rsa-2"), jwk("p256")])
SHARED = issuer("shared", "shared", [{"kty": "oct", "k": b64(SECRET), "kid": "secret"}])
PUBLIC_SPKI = KEYS["rsa-1"].public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)

STEP = "jwtValidation"
INVALID = 'Bearer realm="api", error="invalid_token"'


def chain(*more, **params):
    step = {"policy": STEP, "params": {"issuers": ["accounts"], **params}}
    return {"request": [step, *more]}


def bearer(value):
    return {"headers": [["authorization", f"Bearer {value}"]]}


def allow(**more):
    return {"verdict": "allow", "status": 200, **more}


def deny(reason, **more):
    return {"verdict": "deny", "status": 401, "step": STEP, "reason": reason, "headers": {"www-authenticate": INVALID}, **more}


def case(note, request, want, chain=chain(), **more):
    return {"note": note, "chain": chain, "request": request, "want": want, **more}


def refused(note, value, reason, **more):
    return case(note, bearer(value), deny(reason), **more)


def admitted(note, value, **more):
    return case(note, bearer(value), allow(), **more)


def tampered(value, part, change):
    parts = value.split(".")
    parts[part] = change(parts[part])
    return ".".join(parts)


def flip(text):
    data = bytearray(unb64(text))
    data[len(data) // 2] ^= 1
    return b64(bytes(data))


def algorithms():
    shared, partner = chain(issuers=["shared"]), chain(issuers=["partner"])
    families = [("RS256", "rsa-1"), ("RS384", "rsa-1"), ("RS512", "rsa-1"), ("PS256", "rsa-1"), ("ES256", "p256"), ("ES384", "p384"), ("EdDSA", "ed25519")]
    cases = []
    for alg, key in families:
        good = token(alg=alg, key=key, kid=key)
        cases += [
            admitted(f"admits a token signed with {alg}", good),
            refused(f"refuses a signature of {alg} with one bit changed", tampered(good, 2, flip), "signature_wrong"),
            refused(f"refuses claims of {alg} that were changed", tampered(good, 1, lambda _: b64(compact({**CLAIMS, "sub": "root"}))), "signature_wrong"),
        ]
    secret = token({"iss": "shared"}, "HS256", SECRET, "secret")
    without = lambda alg, key: token({"iss": PARTNER}, alg, key, None)
    cases += [
        admitted("admits a token signed with HS256", secret, chain=shared),
        refused("refuses a signature of HS256 with one bit changed", tampered(secret, 2, flip), "signature_wrong", chain=shared),
        refused("refuses a truncated code of HS256", tampered(secret, 2, lambda part: b64(unb64(part)[:16])), "signature_wrong", chain=shared),
        refused("refuses an empty code of HS256", tampered(secret, 2, lambda _: ""), "signature_wrong", chain=shared),
        refused("refuses a stranger's key under a known name", token(key="rsa-stranger"), "signature_wrong"),
        refused("refuses another key of the issuer than the one named", token(key="rsa-2"), "signature_wrong"),
        admitted("admits another key of the issuer by its name", token(key="rsa-2", kid="rsa-2")),
        refused("keeps to the algorithm that a key is made for", token(alg="RS512", key="rsa-2", kid="rsa-2"), "key_unknown"),
        refused("keeps to the padding that a key is made for", token(alg="PS256", key="rsa-2", kid="rsa-2"), "key_unknown"),
        refused("tells PKCS #1 from PSS", raw(compact({"alg": "PS256", "kid": "rsa-1"}), compact(CLAIMS), "RS256"), "signature_wrong"),
        refused("tells PSS from PKCS #1", raw(compact({"alg": "RS256", "kid": "rsa-1"}), compact(CLAIMS), "PS256"), "signature_wrong"),
        refused("takes no key of another family by name", token(alg="ES256", key="p256", kid="rsa-1"), "key_unknown"),
        refused("takes no key of another curve", token(alg="ES384", key="p384", kid="p256"), "key_unknown"),
        admitted("tries the keys of the algorithm for a token that names none", token(kid=None)),
        admitted("tries all of them", token(key="rsa-2", kid=None)),
        refused("and refuses when none fits", token(key="rsa-stranger", kid=None), "signature_wrong"),
        admitted("finds a key without a name for a token that names none", without("ES256", "p256"), chain=partner),
        refused("finds no key without a name for a token that names one", token({"iss": PARTNER}, "ES256", "p256", "p256"), "key_unknown", chain=partner),
        case("takes a token of either issuer, by its own keys", None, None, chain(issuers=["accounts", "partner", "shared"]), sequence=[
            {"request": bearer(GOOD), "want": allow()},
            {"request": bearer(without("RS256", "rsa-2")), "want": allow()},
            {"request": bearer(secret), "want": allow()},
            {"request": bearer(token({"iss": PARTNER})), "want": deny("key_unknown")},
            {"request": bearer(token({"iss": PARTNER}, kid=None)), "want": deny("signature_wrong")},
            {"request": bearer(token({"iss": "shared"}, "HS256", b"another secret of more than 32 bytes", "secret")), "want": deny("signature_wrong")},
        ]),
        refused("refuses a token of an issuer that the step does not name", token({"iss": PARTNER}, key="rsa-2", kid=None), "issuer_unknown"),
        case("finds a token good again and again, and another not", None, None, chain(), sequence=[
            {"request": bearer(GOOD), "want": allow()},
            {"request": bearer(GOOD), "want": allow()},
            {"request": bearer(tampered(GOOD, 2, flip)), "want": deny("signature_wrong")},
            {"request": bearer(GOOD), "want": allow()},
        ]),
        case("does not take what one step found good for another", None, None, {"request": [
            {"policy": STEP, "params": {"issuers": ["accounts"]}},
            {"policy": STEP, "name": "strict", "params": {"issuers": ["accounts"], "audiences": ["billing"]}},
        ]}, sequence=[
            {"request": bearer(GOOD), "want": {**deny("audience_wrong"), "step": "strict"}},
            {"request": bearer(GOOD), "want": {**deny("audience_wrong"), "step": "strict"}},
            {"request": bearer(token({"aud": ["orders", "billing"]})), "want": allow()},
        ]),
    ]
    return cases


def attacks():
    none = lambda alg: f"{b64(compact({'alg': alg, 'kid': 'rsa-1'}))}.{b64(compact(CLAIMS))}."
    cases = [refused(f"refuses the algorithm {alg}", none(alg), "algorithm_refused") for alg in ("none", "None", "NONE", "nOnE", "")]
    payload = compact(CLAIMS)
    confused = lambda key, kid="rsa-1": raw(compact({"alg": "HS256", "kid": kid} if kid else {"alg": "HS256"}), payload, "HS256", key)
    jwk_own = jwk("rsa-stranger", "rsa-stranger")
    own = lambda header: raw(compact({"alg": "RS256", **header}), payload, "RS256", "rsa-stranger")
    der = KEYS["rsa-1"].public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    head, body, signature = GOOD.split(".")
    assert set("-_") & set(signature), "the alphabets differ only there"
    es = token(alg="ES256", key="p256", kid="p256").split(".")
    es3 = token(alg="ES384", key="p384", kid="p384").split(".")
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    r, s = unb64(es[2])[:32], unb64(es[2])[32:]
    der_signature = utils.encode_dss_signature(int.from_bytes(r, "big"), int.from_bytes(s, "big"))
    psychic = lambda data: f"{es[0]}.{es[1]}.{b64(data)}"
    n = order.to_bytes(32, "big")

    def noncanonical(text):
        """The same bytes with bits set that nothing stands in."""
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        assert len(text) % 4 in (2, 3)
        changed = text[:-1] + alphabet[alphabet.index(text[-1]) + 1]
        assert unb64(changed) == unb64(text)
        return changed

    odd = next(value for value in (token({"pad": "x" * n}) for n in range(4)) if len(value.split(".")[1]) % 4)
    odd_head, odd_body, odd_signature = odd.split(".")
    cases += [
        refused("refuses an empty signature", f"{head}.{body}.", "signature_wrong"),
        refused("refuses the public key as a secret, in PEM", confused(PUBLIC_SPKI), "key_unknown"),
        refused("refuses the public key as a secret, in DER", confused(der), "key_unknown"),
        refused("refuses the public key as a secret for a token that names no key", confused(PUBLIC_SPKI, None), "key_unknown"),
        refused("refuses the modulus as a secret", confused(KEYS["rsa-1"].public_key().public_numbers().n.to_bytes(256, "big")), "key_unknown"),
        refused("ignores a key inside the token", own({"kid": "rsa-1", "jwk": jwk_own}), "signature_wrong"),
        refused("ignores a key inside the token that names it", own({"kid": "rsa-stranger", "jwk": jwk_own}), "key_unknown"),
        refused("ignores a key inside the token that names none", own({"jwk": jwk_own}), "signature_wrong"),
        refused("ignores the address of keys inside the token", own({"kid": "rsa-1", "jku": "https://evil.example/keys"}), "signature_wrong"),
        refused("ignores certificates inside the token", own({"kid": "rsa-1", "x5c": [base64.b64encode(der).decode()], "x5u": "https://evil.example/cert"}), "signature_wrong"),
        admitted("is not disturbed by keys inside a good token", token(headers={"jwk": jwk_own, "jku": "https://evil.example", "x5t": "a"})),
        refused("refuses a path for a key's name", token(kid="../../../../dev/null"), "key_unknown"),
        refused("refuses SQL for a key's name", token(kid="x' UNION SELECT 'key'; --"), "key_unknown"),
        refused("refuses a shell's words for a key's name", token(kid="|/usr/bin/id"), "key_unknown"),
        refused("refuses an empty name of a key", token(kid=""), "key_unknown"),
        refused("refuses an unknown name of a key", token(kid="rsa-3"), "key_unknown"),
        refused("tells names of keys apart by case", token(kid="RSA-1"), "key_unknown"),
        refused("refuses a name with a space behind it", token(kid="rsa-1 "), "key_unknown"),
        refused("refuses a name with a zero behind it", token(kid="rsa-1\0"), "key_unknown"),
        refused("refuses a very long name of a key", token(kid="k" * 3000), "key_unknown"),
        refused("refuses a name that is a number", raw('{"alg":"RS256","kid":1}', payload), "token_malformed"),
        refused("refuses a name that is null", raw('{"alg":"RS256","kid":null}', payload), "token_malformed"),
        refused("refuses a name that is a list", raw('{"alg":"RS256","kid":["rsa-1"]}', payload), "token_malformed"),
        refused("refuses a signature of two zeros", psychic(bytes(64)), "signature_wrong"),
        refused("refuses a signature whose r is zero", psychic(bytes(32) + s), "signature_wrong"),
        refused("refuses a signature whose s is zero", psychic(r + bytes(32)), "signature_wrong"),
        refused("refuses a signature whose r and s are the order", psychic(n + n), "signature_wrong"),
        refused("refuses a signature whose r is past the order", psychic(b"\xff" * 32 + s), "signature_wrong"),
        refused("refuses a signature of two zeros on P-384", f"{es3[0]}.{es3[1]}.{b64(bytes(96))}", "signature_wrong"),
        refused("refuses a signature of ECDSA in DER", psychic(der_signature), "signature_wrong"),
        refused("refuses a signature of ECDSA with a byte more", psychic(r + s + b"\0"), "signature_wrong"),
        refused("refuses a signature of ECDSA with a byte less", psychic((r + s)[:-1]), "signature_wrong"),
        refused("refuses a signature of RSA with a zero before it", f"{head}.{body}.{b64(bytes(1) + unb64(signature))}", "signature_wrong"),
        refused("refuses a signature of RSA that is one", f"{head}.{body}.{b64(bytes(255) + bytes([1]))}", "signature_wrong"),
        refused("refuses a signature of RSA that is zero", f"{head}.{body}.{b64(bytes(256))}", "signature_wrong"),
        refused("refuses padding", f"{odd_head}.{odd_body}{'=' * (-len(odd_body) % 4)}.{odd_signature}", "token_malformed"),
        refused("refuses padding of the signature", f"{GOOD}==", "token_malformed"),
        refused("refuses the standard alphabet", f"{head}.{body}.{base64.b64encode(unb64(signature)).decode().rstrip('=')}", "token_malformed"),
        refused("refuses bits that nothing stands in", f"{head}.{body}.{noncanonical(signature)}", "token_malformed"),
        refused("refuses such bits in claims", f"{odd_head}.{noncanonical(odd_body)}.{odd_signature}", "token_malformed"),
        refused("refuses a space in the middle", f"{head}.{body[:9]} {body[9:]}.{signature}", "token_malformed"),
        refused("refuses a tab before the token", f"\t{GOOD}", "token_malformed"),
        refused("refuses something behind the token", f"{GOOD} {GOOD}", "token_malformed"),
        refused("refuses quotes", f'"{GOOD}"', "token_malformed"),
        refused("refuses one part", head, "token_malformed"),
        refused("refuses two parts", f"{head}.{body}", "token_malformed"),
        refused("refuses four parts", f"{GOOD}.", "token_malformed"),
        refused("refuses four parts with the first empty", f".{GOOD}", "token_malformed"),
        refused("refuses dots alone", "..", "token_malformed"),
        refused("refuses an encrypted token", ".".join([b64('{"alg":"RSA-OAEP","enc":"A256GCM"}'), "a" * 8, "b" * 8, "c" * 8, "d" * 8]), "token_malformed"),
        refused("refuses a token inside a token", raw(compact({"alg": "RS256", "kid": "rsa-1", "cty": "JWT"}), GOOD), "token_malformed"),
        refused("refuses a token in JSON", compact({"token": GOOD}), "token_malformed"),
        refused("refuses a truncated token", GOOD[:-10], "signature_wrong"),
        refused("refuses what is critical", raw('{"alg":"RS256","kid":"rsa-1","crit":["exp"],"exp":1}', payload), "token_malformed"),
        refused("refuses what is critical though there is nothing", raw('{"alg":"RS256","kid":"rsa-1","crit":[]}', payload), "token_malformed"),
        refused("refuses a payload that is not encoded", raw('{"alg":"RS256","kid":"rsa-1","b64":false,"crit":["b64"]}', payload), "token_malformed"),
        refused("refuses two algorithms", raw('{"alg":"RS256","kid":"rsa-1","alg":"RS256"}', payload), "token_malformed"),
        refused("refuses two algorithms, one of them escaped", raw('{"alg":"RS256","kid":"rsa-1","\\u0061lg":"none"}', payload), "token_malformed"),
        refused("refuses a claim that is there twice", raw(HEADER, payload[:-1] + ',"sub":"root"}'), "token_malformed"),
        refused("refuses a claim that is there twice further down", raw(HEADER, payload[:-1] + ',"a":{"b":1,"b":1}}'), "token_malformed"),
        refused("refuses an algorithm that is no text", raw('{"alg":["RS256"],"kid":"rsa-1"}', payload), "token_malformed"),
        refused("refuses a header without an algorithm", raw('{"kid":"rsa-1"}', payload), "token_malformed"),
        refused("refuses an unknown algorithm", raw('{"alg":"RS1","kid":"rsa-1"}', payload), "algorithm_refused"),
        refused("tells algorithms apart by case", raw('{"alg":"rs256","kid":"rsa-1"}', payload), "algorithm_refused"),
        refused("refuses a header that is no object", raw('["RS256"]', payload), "token_malformed"),
        refused("refuses a header that is not JSON", raw('{"alg":"RS256",}', payload), "token_malformed"),
        refused("refuses claims that are no object", raw(HEADER, '"alice"'), "token_malformed"),
        refused("refuses claims with something behind them", raw(HEADER, payload + "{}"), "token_malformed"),
        refused("refuses claims with a byte-order mark", raw(HEADER, "\ufeff" + payload), "token_malformed"),
        refused("refuses claims that are not UTF-8", raw(HEADER, payload[:-1].encode() + b',"a":"\xff"}'), "token_malformed"),
        refused("refuses half a surrogate pair", raw(HEADER, payload[:-1] + ',"a":"\\ud800"}'), "token_malformed"),
        refused("refuses claims nested too deep", raw(HEADER, payload[:-1] + ',"a":' + "[" * 2000 + "]" * 2000 + "}"), "token_malformed"),
        refused("refuses a header nested too deep", raw('{"alg":"RS256","kid":"rsa-1","a":' + "[" * 1000 + "]" * 1000 + "}", payload), "token_malformed"),
        refused("refuses a bomb that is not even closed", raw(HEADER, '{"a":' * 500), "token_malformed"),
        refused("refuses too many values", raw(HEADER, payload[:-1] + ',"a":[' + "0," * 2500 + "0]}"), "token_malformed"),
        refused("refuses a number that is none", raw(HEADER, payload[:-1] + ',"a":1e999}'), "token_malformed"),
        refused("refuses not a number", raw(HEADER, payload[:-1] + ',"a":NaN}'), "token_malformed"),
        refused("refuses a token that is too long", token({"a": "x" * 9000}), "token_too_large"),
        refused("refuses what is no token at all", "x" * 100, "token_malformed"),
        {"note": "refuses a token that is not text", "chain": chain(), "request": {"headers": [["authorization", {"hex": (b"Bearer " + GOOD.encode() + b"\xff\xfe").hex()}]]}, "want": deny("token_malformed")},
        admitted("admits the type of access tokens", token(headers={"typ": "at+jwt"})),
        admitted("tolerates white space in JSON", raw('{ "alg" : "RS256",\n "kid":"rsa-1" }', " " + json.dumps(CLAIMS, indent=2) + "\n")),
        admitted("admits escapes in names", raw('{"\\u0061lg":"RS256","kid":"\\u0072sa-1"}', payload)),
    ]
    return cases


def claims():
    partner = {"issuers": ["partner"]}
    by_partner = lambda claims=None, **more: token({"iss": PARTNER, **(claims or {})}, key="rsa-2", kid=None, **more)
    number_text = lambda text: raw(HEADER, compact({**CLAIMS, "exp": 0}).replace('"exp":0', f'"exp":{text}'))
    cases = [
        admitted("admits an audience among several", token({"aud": ["other", "billing"]})),
        refused("refuses another audience", token({"aud": "other"}), "audience_wrong"),
        refused("refuses no audience where one is wanted", token(drop=["aud"]), "audience_wrong"),
        refused("refuses an empty list of audiences", token({"aud": []}), "audience_wrong"),
        refused("refuses a part of an audience", token({"aud": "order"}), "audience_wrong"),
        refused("refuses an audience that is a number", raw(HEADER, compact({**CLAIMS, "aud": 1})), "token_malformed"),
        refused("refuses an audience that is null", raw(HEADER, compact({**CLAIMS, "aud": None})), "token_malformed"),
        refused("refuses a list of audiences that has more than text", raw(HEADER, compact({**CLAIMS, "aud": ["orders", 1]})), "token_malformed"),
        admitted("takes any audience where none is wanted", by_partner({"aud": "whatever"}), chain=chain(**partner)),
        admitted("wants the step's audience", by_partner({"aud": "shop"}), chain=chain(**partner, audiences=["shop", "till"])),
        refused("refuses another than the step's audience", by_partner(), "audience_wrong", chain=chain(**partner, audiences=["shop"])),
        refused("wants the step's audience beside the issuer's", GOOD, "audience_wrong", chain=chain(audiences=["billing"])),
        refused("wants the issuer's audience beside the step's", token({"aud": "shop"}), "audience_wrong", chain=chain(audiences=["shop"])),
        admitted("is content with one audience that both want", GOOD, chain=chain(audiences=["orders"])),
        admitted("is content with one audience for each", token({"aud": ["shop", "orders"]}), chain=chain(audiences=["shop"])),
        refused("refuses another issuer", token({"iss": "https://evil.example"}), "issuer_unknown"),
        refused("refuses no issuer", token(drop=["iss"]), "issuer_unknown"),
        refused("refuses an issuer with a slash more", token({"iss": ISS + "/"}), "issuer_unknown"),
        refused("refuses a list of issuers", raw(HEADER, compact({**CLAIMS, "iss": [ISS]})), "issuer_unknown"),
        refused("refuses an expired token", token({"exp": PAST}), "token_expired"),
        refused("refuses a token without an expiry", token(drop=["exp"]), "claim_missing"),
        admitted("takes a token without an expiry where told to", token(drop=["exp"]), chain=chain(requireExpiry=False)),
        refused("refuses an expired token also there", token({"exp": PAST}), "token_expired", chain=chain(requireExpiry=False)),
        refused("refuses an expiry that is text", number_text(f'"{FUTURE}"'), "token_malformed"),
        refused("refuses an expiry that is null", number_text("null"), "token_malformed"),
        refused("refuses an expiry that is true", number_text("true"), "token_malformed"),
        refused("refuses an expiry before 1970", number_text("-1"), "token_expired"),
        refused("refuses an expiry of the least integer", number_text("-9223372036854775808"), "token_expired"),
        refused("refuses an expiry of zero", number_text("0"), "token_expired"),
        refused("refuses an expiry in the past with an exponent", number_text("1.0e9"), "token_expired"),
        admitted("takes an expiry with a fraction", number_text(f"{FUTURE}.5")),
        admitted("takes an expiry with an exponent", number_text("4.1024448e9")),
        admitted("takes an expiry at the end of time", number_text("9223372036854775807")),
        admitted("takes an expiry past 64 bits", number_text("18446744073709551615")),
        admitted("takes an expiry past all integers", number_text("1e300")),
        refused("refuses an expiry past all numbers", number_text("1e400"), "token_malformed"),
        refused("refuses a token that is not good yet", token({"nbf": FUTURE - 10}), "token_premature"),
        admitted("takes a token that is good since long", token({"nbf": PAST})),
        refused("refuses a start that is text", raw(HEADER, compact({**CLAIMS, "nbf": "0"})), "token_malformed"),
        refused("refuses a token from the future", token({"iat": FUTURE - 10}), "token_premature"),
        admitted("takes a token that is old", token({"iat": PAST})),
        refused("refuses a token that is too old", token({"iat": PAST}), "token_expired", chain=chain(maxAge="1h")),
        refused("wants to know how old", GOOD, "claim_missing", chain=chain(maxAge="1h")),
        admitted("takes claims that are wanted", token({"email": "a@example.com", "a": {"b": False}}), chain=chain(requiredClaims=["email", "a.b"])),
        refused("refuses a token without a claim that is wanted", GOOD, "claim_missing", chain=chain(requiredClaims=["sub", "email"])),
        refused("takes null for no claim", token({"email": None}), "claim_missing", chain=chain(requiredClaims=["email"])),
        refused("wants the member that is named", token({"a": {"c": 1}}), "claim_missing", chain=chain(requiredClaims=["a.b"])),
        admitted("finds a claim with dots in its name", token({"https://example.com/tenant": "acme"}), chain=chain(requiredClaims=["https://example.com/tenant"])),
        admitted("takes a token of the longest size", token({"a": "x" * 400}), chain=chain(maxTokenSize=len(token({"a": "x" * 400})))),
        refused("refuses a token one byte longer", token({"a": "x" * 400}), "token_too_large", chain=chain(maxTokenSize=len(token({"a": "x" * 400})) - 1)),
        admitted("takes a longer token where told to", token({"a": "x" * 9000}), chain=chain(maxTokenSize="16KiB")),
    ]
    edges = [(1300819379, allow()), (1300819380, deny("token_expired")), (1300819381, deny("token_expired"))]
    timed = lambda claims, times, **params: {
        "chain": chain(**params),
        "except": {"envoy": "its clock cannot be set"},
        "sequence": [{"request": {**bearer(token(claims)), "at": at}, "want": want} for at, want in times],
    }
    cases += [
        {"note": "refuses a token from the second of its expiry on, also one that it knows", **timed({"exp": 1300819380}, edges)},
        {"note": "adds the leeway to the expiry, and no more", **timed({"exp": 1300819350}, edges, leeway="30s")},
        {"note": "takes a token from the second of its start on", **timed({"nbf": 1300819380, "iat": 1300819380}, [(1300819379, deny("token_premature")), (1300819380, allow()), (1300819379, deny("token_premature"))])},
        {"note": "takes the leeway off the start, and no more", **timed({"nbf": 1300819400}, [(1300819379, deny("token_premature")), (1300819380, allow())], leeway="20s")},
        {"note": "takes a token until it is too old", **timed({"iat": 1300815780}, edges, maxAge="1h")},
    ]
    return cases


def sources():
    to_headers = {"sub": "x-user", "email": "x-email", "level": "x-level", "admin": "x-admin", "tags": "x-tags", "address.city": "x-city", "ratio": "x-ratio", "address": "x-address"}
    rich = token({"level": 7, "admin": True, "tags": ["a,b", "c\"d"], "address": {"city": "Bern"}, "ratio": 1.5})
    spoofed = [["x-user", "root"], ["x-email", "root@example.com"], ["x-email", "twice@example.com"]]
    missing = lambda note, request, **more: case(note, request, {"verdict": "deny", "status": 401, "step": STEP, "reason": "token_missing", "headers": {"www-authenticate": 'Bearer realm="api"'}}, **more)
    repeated = lambda note, request, **more: case(note, request, {"verdict": "deny", "status": 400, "step": STEP, "reason": "token_repeated", "headers": {"www-authenticate": 'Bearer realm="api", error="invalid_request"'}}, **more)
    kept = lambda value: allow(upstream={"authorization": value})
    validate = lambda rule: {"policy": "validate", "params": {"rules": [{"rule": rule, "message": "no"}], "status": 422}}
    cel = lambda note, rule, value, good=True: case(note, bearer(value), allow() if good else {"verdict": "deny", "status": 422, "step": "validate", "reason": "rule_broken"}, chain(validate(rule)))
    limited = lambda key: chain({"policy": "rateLimit", "params": {"requests": 5, "per": "1h", "key": key}}, consumer="sub")
    stranger = lambda step: {"verdict": "deny", "status": 403, "step": step, "reason": "consumer_unknown", "headers": {"content-type": "application/problem+json", "retry-after": None}}
    consumer = lambda claim: chain({"policy": "roleCheck", "params": {"groups": ["staff"]}}, consumer=claim)
    claimed = {"tenant": "acme", "level": 7, "ratio": 0.5, "admin": True, "tags": ["a", "b"], "realm": {"roles": ["x", "y"]}, "big": 18446744073709551615}
    body = '{"title":"Unauthorized","status":401,"detail":"a valid token is required"}'
    return [
        case("takes the token from the authorization header and hands it on", bearer(GOOD), kept(f"Bearer {GOOD}")),
        missing("wants a token", {}),
        missing("wants a token behind the scheme", {"headers": [["authorization", "Bearer"]]}),
        missing("takes another scheme for no token", {"headers": [["authorization", "Basic YTpi"]]}),
        missing("takes a token without a scheme for none", {"headers": [["authorization", GOOD]]}),
        missing("takes a longer scheme for another", {"headers": [["authorization", f"Bearers {GOOD}"]]}),
        missing("wants a space behind the scheme", {"headers": [["authorization", f"Bearer\t{GOOD}"]]}),
        case("takes the scheme in any case", {"headers": [["authorization", f"bEARER {GOOD}"]]}, allow()),
        case("takes several spaces behind the scheme", {"headers": [["authorization", f"Bearer   {GOOD}"]]}, allow()),
        repeated("refuses two tokens", {"headers": [["authorization", f"Bearer {GOOD}"], ["authorization", f"Bearer {GOOD}"]]}),
        repeated("refuses two tokens in one header", bearer(f"{GOOD}, Bearer {GOOD}")),
        repeated("refuses a signature in JSON, which has commas", bearer(compact(dict(zip(("protected", "payload", "signature"), GOOD.split(".")))))),
        missing("takes the first of two credentials for what it is", {"headers": [["authorization", "Basic YTpi"], ["authorization", f"Bearer {GOOD}"]]}),
        repeated("refuses two tokens in another header", {"headers": [["x-token", GOOD], ["x-token", GOOD]]}, chain=chain(header="x-token")),
        repeated("refuses a token beside another credential", {"headers": [["authorization", f"Bearer {GOOD}"], ["authorization", "Basic YTpi"]]}),
        case("says no more than that a token is wanted", bearer("x"), deny("token_malformed", body=body)),
        case("says the realm that it was given", bearer("x"), {**deny("token_malformed"), "headers": {"www-authenticate": 'Bearer realm="the shop", error="invalid_token"'}}, chain(realm="the shop")),
        case("takes the token from another header", {"headers": [["x-token", GOOD]]}, allow(upstream={"x-token": GOOD}), chain(header="X-Token")),
        case("wants no scheme in another header", {"headers": [["x-token", f"Bearer {GOOD}"]]}, deny("token_malformed"), chain(header="x-token")),
        case("takes another scheme", {"headers": [["authorization", f"Token {GOOD}"]]}, allow(), chain(scheme="Token")),
        case("takes a scheme in another header", {"headers": [["x-token", f"JWT {GOOD}"]]}, allow(), chain(header="x-token", scheme="JWT")),
        missing("does not look where it was not told to", bearer(GOOD), chain=chain(header="x-token")),
        case("takes the token from the query", {"path": f"/a?access_token={GOOD}&b=1"}, allow(), chain(query="access_token")),
        repeated("refuses two tokens in the query", {"path": f"/?t={GOOD}&t={GOOD}"}, chain=chain(query="t")),
        missing("takes an empty parameter for no token", {"path": "/?t="}, chain=chain(query="t")),
        case("refuses a space behind a token in the query", {"path": f"/?t={GOOD}%20"}, deny("token_malformed"), chain(query="t")),
        case("refuses a line's end behind a token in the query", {"path": f"/?t={GOOD}%0a"}, deny("token_malformed"), chain(query="t")),
        case("takes the token from a cookie", {"headers": [["cookie", f"a=b; token={GOOD}; c=d"]]}, allow(upstream={"cookie": f"a=b; token={GOOD}; c=d"}), chain(cookie="token")),
        repeated("refuses two cookies", {"headers": [["cookie", f"token={GOOD}; token={GOOD}"]]}, chain=chain(cookie="token")),
        case("keeps the token from the upstream where told to", bearer(GOOD), kept(None), chain(forward=False)),
        case("keeps a cookie from the upstream, and no other", {"headers": [["cookie", f"a=b; token={GOOD}; c=d"]]}, allow(upstream={"cookie": "a=b; c=d"}), chain(cookie="token", forward=False)),
        case("keeps the only cookie from the upstream", {"headers": [["cookie", f"token={GOOD}"]]}, allow(upstream={"cookie": None}), chain(cookie="token", forward=False)),
        case("hands the token on where told to", bearer(GOOD), kept(f"Bearer {GOOD}"), chain(forward=True)),
        case("lets a request without a token pass where told to", {"headers": spoofed}, allow(upstream={"x-user": None, "x-email": None}), chain(allowMissing=True, claimsToHeaders={"sub": "x-user", "email": "x-email"})),
        refused("refuses a bad token also there", tampered(GOOD, 2, flip), "signature_wrong", chain=chain(allowMissing=True)),
        case("has no claims without a token", {}, allow(), chain({"policy": "validate", "params": {"rules": [{"rule": "!has(jwt.claims.sub)", "message": "no"}]}}, allowMissing=True)),
        case("makes headers of claims", bearer(rich), allow(upstream={"x-user": "alice", "x-level": "7", "x-admin": "true", "x-tags": '["a,b","c\\"d"]', "x-city": "Bern", "x-ratio": "1.5", "x-address": '{"city":"Bern"}', "x-email": None}), chain(claimsToHeaders=to_headers)),
        case("replaces what the caller says, and removes it where the claim is missing", {"headers": [["authorization", f"Bearer {GOOD}"], *spoofed]}, allow(upstream={"x-user": "alice", "x-email": None}), chain(claimsToHeaders=to_headers)),
        case("removes it also for a token that it knows", None, None, chain(claimsToHeaders=to_headers), sequence=[
            {"request": bearer(rich), "want": allow(upstream={"x-user": "alice", "x-level": "7"})},
            {"request": {"headers": [["authorization", f"Bearer {rich}"], *spoofed]}, "want": allow(upstream={"x-user": "alice", "x-level": "7", "x-email": None})},
        ]),
        refused("refuses a claim that would end a header", token({"sub": "a\r\nx-admin: true"}), "claim_unfit", chain=chain(claimsToHeaders=to_headers)),
        refused("refuses a claim with a zero in it", token({"email": "a\0b"}), "claim_unfit", chain=chain(claimsToHeaders=to_headers)),
        refused("refuses a claim with a space before it", token({"sub": " alice"}), "claim_unfit", chain=chain(claimsToHeaders=to_headers)),
        refused("refuses a claim with a tab behind it", token({"email": "a@b\t"}), "claim_unfit", chain=chain(claimsToHeaders=to_headers)),
        refused("refuses an empty claim", token({"email": ""}), "claim_unfit", chain=chain(claimsToHeaders=to_headers)),
        case("keeps a space within a claim", bearer(token({"sub": "Alice Liddell"})), allow(upstream={"x-user": "Alice Liddell"}), chain(claimsToHeaders={"sub": "x-user"})),
        admitted("minds such a claim only where it becomes a header", token({"sub": "a\r\nb"})),
        case("makes a header of text that is not ASCII", bearer(token({"sub": "Zoë"})), allow(upstream={"x-user": "Zoë"}), chain(claimsToHeaders={"sub": "x-user"})),
        case("finds the consumer of a claim", bearer(GOOD), allow(consumer="alice"), consumer("sub")),
        case("finds the consumer of a nested claim", bearer(token({"app": {"id": "bob"}})), allow(consumer="bob"), consumer("app.id")),
        case("knows no consumer of another name", bearer(token({"sub": "mallory"})), {"verdict": "deny", "status": 403, "step": "roleCheck", "reason": "group_missing"}, consumer("sub")),
        case("knows no consumer without the claim", bearer(token(drop=["sub"])), {"verdict": "deny", "status": 403, "step": "roleCheck", "reason": "group_missing"}, consumer("sub")),
        refused("refuses a consumer that is no text", token({"uid": 7}), "claim_unfit", chain=consumer("uid")),
        case("limits the consumer of a claim", bearer(GOOD), allow(consumer="alice"), limited("consumer.name")),
        case("refuses a token of no consumer where a limit is by consumer", bearer(token({"sub": "mallory"})), stranger("rateLimit"), limited("consumer.name")),
        case("refuses a token of no consumer where a limit is by groups", bearer(token({"sub": "mallory"})), stranger("rateLimit"), limited("consumer.groups[0]")),
        case("limits a token of no consumer by what a key falls back to", bearer(token({"sub": "mallory"})), allow(), limited("has(consumer.name) ? consumer.name : jwt.claims.sub")),
        case("refuses a token of no consumer where a rule asks for one", bearer(token({"sub": "mallory"})), stranger("validate"), chain({"policy": "validate", "params": {"rules": [{"rule": "consumer.name != 'bob'", "message": "not bob"}]}}, consumer="sub")),
        case("knows no consumer unless told where", bearer(GOOD), {"verdict": "deny", "status": 403, "step": "roleCheck", "reason": "group_missing"}, chain({"policy": "roleCheck", "params": {"groups": ["staff"]}})),
        cel("shows claims to expressions", "jwt.claims.tenant == 'acme' && jwt.claims.iss.startsWith('https://')", token(claimed)),
        cel("shows numbers to expressions", "jwt.claims.level >= 7 && jwt.claims.ratio < 1.0 && jwt.claims.big == 18446744073709551615u && jwt.claims.admin", token(claimed)),
        cel("shows lists and maps to expressions", "'b' in jwt.claims.tags && jwt.claims.realm.roles.size() == 2 && jwt.claims.realm.roles[1] == 'y'", token(claimed)),
        cel("shows what is not there to expressions", "!has(jwt.claims.nothing) && !('nothing' in jwt.claims)", token(claimed)),
        cel("is denied by an expression", "jwt.claims.level > 7", token(claimed), good=False),
        case("fails on a claim that is missing", bearer(GOOD), {"verdict": "deny", "status": 500, "step": "validate", "reason": "rule_failed"}, chain(validate("jwt.claims.tenant == 'acme'"))),
        case("shows claims to the response", bearer(GOOD), allow(headers={"x-seen": "yes"}), {"request": chain()["request"], "response": [{"policy": "headers", "when": "jwt.claims.sub == 'alice'", "params": {"set": {"x-seen": "yes"}}}]}),
        case("runs under a condition", {"path": "/health"}, allow(), {"request": [{"policy": STEP, "when": "request.url_path != '/health'", "params": {"issuers": ["accounts"]}}]}),
        case("only reports in shadow mode", {"headers": [["authorization", "Bearer x"], ["x-user", "root"]]}, allow(notes=[f"shadow={STEP}:token_malformed"], upstream={"x-user": None}), {"request": [{"policy": STEP, "mode": "shadow", "params": {"issuers": ["accounts"], "claimsToHeaders": {"sub": "x-user"}}}]}),
        case("teaches nothing in shadow mode", bearer(GOOD), allow(upstream={"x-user": None}), {"request": [{"policy": STEP, "mode": "shadow", "params": {"issuers": ["accounts"], "claimsToHeaders": {"sub": "x-user"}}}, {"policy": "validate", "params": {"rules": [{"rule": "!has(jwt.claims.sub)", "message": "no"}]}}]}),
    ]


def roles():
    def check(note, claims, params, want=None, reason=None, **more):
        value = token(claims)
        if want is None:
            want = allow() if reason is None else {"verdict": "deny", "status": 403, "step": "roleCheck", "reason": reason, **more}
        return case(note, bearer(value), want, chain({"policy": "roleCheck", "params": params}))

    insufficient = {"headers": {"www-authenticate": 'Bearer error="insufficient_scope"'}}
    return [
        check("admits a role of a list", {"roles": ["reader", "writer"]}, {"roles": ["writer"]}),
        check("admits a single role", {"roles": "writer"}, {"roles": ["admin", "writer"]}),
        check("denies a role that is missing", {"roles": ["reader"]}, {"roles": ["writer"]}, reason="role_missing", headers={"www-authenticate": None}),
        check("denies without roles", {}, {"roles": ["writer"]}, reason="role_missing"),
        check("does not split a single role", {"roles": "reader writer"}, {"roles": ["writer"]}, reason="role_missing"),
        check("needs all roles when told to", {"roles": ["reader"]}, {"roles": ["reader", "writer"], "match": "all"}, reason="role_missing"),
        check("admits who has all roles", {"roles": ["writer", "reader", "x"]}, {"roles": ["reader", "writer"], "match": "all"}),
        check("finds roles where told to", {"realm_access": {"roles": ["admin"]}}, {"roles": ["admin"], "rolesClaim": "realm_access.roles"}),
        check("finds roles in a claim whose name has dots", {"https://example.com/roles": ["admin"]}, {"roles": ["admin"], "rolesClaim": "https://example.com/roles"}),
        check("tells roles apart by case", {"roles": ["Admin"]}, {"roles": ["admin"]}, reason="role_missing"),
        check("is not fooled by a map of roles", {"roles": {"admin": True}}, {"roles": ["admin"]}, reason="role_missing"),
        check("is not fooled by a list in a list", {"roles": [["admin"]]}, {"roles": ["admin"]}, reason="role_missing"),
        check("admits a scope among several", {"scope": "orders:read orders:write"}, {"scopes": ["orders:write"]}),
        check("admits a scope of a list", {"scope": ["orders:read", "orders:write"]}, {"scopes": ["orders:write"]}),
        check("denies a scope that is missing", {"scope": "orders:read"}, {"scopes": ["orders:write"]}, reason="scope_missing", **insufficient),
        check("denies without scopes", {}, {"scopes": ["orders:write"]}, reason="scope_missing", **insufficient),
        check("denies a part of a scope", {"scope": "orders:readonly"}, {"scopes": ["orders:read"]}, reason="scope_missing", **insufficient),
        check("needs all scopes when told to", {"scope": "a b"}, {"scopes": ["a", "c"], "match": "all"}, reason="scope_missing", **insufficient),
        check("admits who has all scopes", {"scope": "a b c"}, {"scopes": ["a", "c"], "match": "all"}),
        check("finds scopes where told to", {"scp": ["a"]}, {"scopes": ["a"], "scopesClaim": "scp"}),
        check("admits a claim of a value that counts", {"tenant": "acme"}, {"claims": {"tenant": ["acme", "globex"]}}),
        check("denies a claim of another value", {"tenant": "evil"}, {"claims": {"tenant": ["acme", "globex"]}}, reason="claim_mismatch"),
        check("denies a claim that is missing", {}, {"claims": {"tenant": ["acme"]}}, reason="claim_mismatch"),
        check("compares numbers and truth values as text", {"level": 7, "email_verified": True}, {"claims": {"level": ["7"], "email_verified": ["true"]}}),
        check("wants every claim", {"tenant": "acme", "level": 1}, {"claims": {"tenant": ["acme"], "level": ["7"]}}, reason="claim_mismatch"),
        check("finds a value in a list", {"a": {"b": ["x", "y"]}}, {"claims": {"a.b": ["y"]}}),
        check("needs all values when told to", {"amr": ["pwd"]}, {"claims": {"amr": ["pwd", "otp"]}, "match": "all"}, reason="claim_mismatch"),
        check("wants roles and scopes together", {"roles": ["admin"], "scope": "a"}, {"roles": ["admin"], "scopes": ["b"]}, reason="scope_missing", **insufficient),
        check("admits who has roles and scopes", {"roles": ["admin"], "scope": "a"}, {"roles": ["admin"], "scopes": ["a"], "claims": {"sub": ["alice"]}}),
        case("wants groups and scopes together", bearer(token({"scope": "a"})), allow(consumer="alice"), chain({"policy": "roleCheck", "params": {"groups": ["staff"], "scopes": ["a"]}}, consumer="sub")),
        case("denies a caller of whom nothing is known", {}, {"verdict": "deny", "status": 401, "step": "roleCheck", "reason": "caller_unknown"}, {"request": [{"policy": "roleCheck", "params": {"scopes": ["a"]}}]}),
        case("denies a caller without a token who has only a key", {"headers": [["x-api-key", "alice-key"]]}, {"verdict": "deny", "status": 403, "step": "roleCheck", "reason": "scope_missing", "consumer": "alice", **insufficient}, {"request": [{"policy": "apiKeyAuth", "params": {"header": "x-api-key"}}, {"policy": "roleCheck", "params": {"scopes": ["a"]}}]}),
    ]


def rfc():
    """The examples of the RFCs, verbatim. Those of RFC 7515 expired in 2011."""
    hs = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    rs = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
    es = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    none = "eyJhbGciOiJub25lIn0.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ."
    ed = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
    resources = [
        issuer("joe-hs", "joe", [{"kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}]),
        issuer("joe-rs", "joe", [{"kty": "RSA", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ", "e": "AQAB"}]),
        issuer("joe-es", "joe", [{"kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]),
        issuer("joe-ed", "joe", [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]),
    ]
    cases = []
    then = 1300819379
    for name, section, value, key in [("HS256", "A.1", hs, "joe-hs"), ("RS256", "A.2", rs, "joe-rs"), ("ES256", "A.3", es, "joe-es")]:
        on = chain(issuers=[key])
        is_root = {"policy": "validate", "params": {"rules": [{"rule": "jwt.claims['http://example.com/is_root']", "message": "no"}]}}
        cases += [
            {"note": f"takes RFC 7515, {section} ({name}), before it expired", "chain": chain(is_root, issuers=[key]), "except": {"envoy": "its clock cannot be set"}, "sequence": [
                {"request": {**bearer(value), "at": then}, "want": allow()},
                {"request": {**bearer(value), "at": then + 1}, "want": deny("token_expired")},
                {"request": {**bearer(tampered(value, 2, flip)), "at": then}, "want": deny("signature_wrong")},
            ]},
            refused(f"refuses RFC 7515, {section} ({name}), since it expired", value, "token_expired", chain=on),
        ]
    cases += [
        refused("refuses RFC 7519, 3.1, since it expired", hs, "token_expired", chain=chain(issuers=["joe-hs"])),
        refused("refuses RFC 7519, 6.1, which is not signed", none, "algorithm_refused", chain=chain(issuers=["joe-hs"])),
        refused("refuses RFC 8037, A.4, whose payload has no claims", ed, "token_malformed", chain=chain(issuers=["joe-ed"])),
    ]
    return resources, cases


def refusals(items):
    return [{"note": note, "chain": made, "says": says} for note, made, says in items]


JWT_REFUSALS = refusals([
    ("the issuer must be there", chain(issuers=["nobody"]), "unknown issuer `nobody`"),
    ("the issuers must not be empty", chain(issuers=[]), "expected at least 1 item"),
    ("with several issuers, the step must say whose tokens count", {"request": [{"policy": STEP}]}, "there are several Issuers"),
    ("one issuer twice is a mistake", chain(issuers=["accounts", "accounts"]), "the same `issuer`"),
    ("the token is in one place", chain(header="x-token", query="t"), "at most one of"),
    ("the token is in one place of three", chain(query="t", cookie="t"), "at most one of"),
    ("a scheme goes with a header", chain(query="t", scheme="Bearer"), "`scheme` goes with `header`"),
    ("a token stays in the query", chain(query="t", forward=False), "`forward: false` cannot be had with `query`"),
    ("a parameter has a name", chain(query=""), "`query` must not be empty"),
    ("the leeway is short", chain(leeway="11m"), "at most `10m`"),
    ("the leeway is a length of time", chain(leeway="soon"), "leeway"),
    ("the longest token is not too long", chain(maxTokenSize="65KiB"), "`maxTokenSize`"),
    ("a claim has a name", chain(requiredClaims=[""]), "must not be empty"),
    ("a claim that becomes a header has a name", chain(claimsToHeaders={"": "x-a"}), "must not be empty"),
    ("two claims do not become one header", chain(claimsToHeaders={"a": "x-a", "b": "X-A"}), "the same header"),
    ("a claim becomes a header", chain(claimsToHeaders={"a": "not a header"}), "claimsToHeaders"),
    ("the realm has no quotes", chain(realm='a"b'), "`realm`"),
    ("audiences are not empty", chain(audiences=[""]), "must not be empty"),
    ("there is no such parameter", chain(algorithms=["none"]), "algorithms"),
    ("it guards requests only", {"response": [{"policy": STEP, "params": {"issuers": ["accounts"]}}]}, STEP),
])

ROLE_REFUSALS = refusals([
    ("something must be wanted", {"request": [{"policy": "roleCheck", "params": {"match": "any"}}]}, "at least one of"),
    ("roles are not empty", {"request": [{"policy": "roleCheck", "params": {"roles": []}}]}, "expected at least 1 item"),
    ("a scope has no spaces", {"request": [{"policy": "roleCheck", "params": {"scopes": ["a b"]}}]}, "a scope has no spaces"),
    ("a claim's values are a list", {"request": [{"policy": "roleCheck", "params": {"claims": {"a": "b"}}}]}, "claims"),
    ("where roles are goes with roles", {"request": [{"policy": "roleCheck", "params": {"scopes": ["a"], "rolesClaim": "r"}}]}, "`rolesClaim` goes with `roles`"),
    ("a claim has a name", {"request": [{"policy": "roleCheck", "params": {"claims": {"": ["a"]}}}]}, "must not be empty"),
])


def write(name, about, resources, cases, refusals=()):
    lines = ["# Made by generate/jwt.py, which says how to run it. Change that, not this.", f"about: {json.dumps(about)}", "resources:"]
    lines += [f"  - {json.dumps(resource)}" for resource in resources]
    lines.append("cases:")
    for entry in cases:
        members = [(key, value) for key, value in entry.items() if value is not None]
        for index, (key, value) in enumerate(members):
            lines.append(f"  {'-' if index == 0 else ' '} {key}: {json.dumps(value)}")
    if refusals:
        lines.append("refusals:")
        for entry in refusals:
            for index, (key, value) in enumerate(entry.items()):
                lines.append(f"  {'-' if index == 0 else ' '} {key}: {json.dumps(value)}")
    with open(os.path.join(CASES, f"{name}.yaml"), "w") as file:
        file.write("\n".join(lines) + "\n")
    print(f"{name}: {len(cases)} cases, {len(refusals)} refusals")


# As role-check.yaml has them: files of one corpus share what is equal.
PEOPLE = [
    {"apiVersion": "postern/v1", "kind": "Consumer", "metadata": {"name": "alice"}, "spec": {"apiKeys": [{"key": "alice-key"}], "groups": ["admins", "staff"]}},
    {"apiVersion": "postern/v1", "kind": "Consumer", "metadata": {"name": "bob"}, "spec": {"apiKeys": [{"key": "bob-key"}, {"key": "bob second key"}], "groups": ["staff"]}},
]
RFC_RESOURCES, RFC_CASES = rfc()
write("jwt-algorithms", "jwtValidation: algorithms, keys, issuers, and tokens that are known already", [ACCOUNTS, PARTNERS, SHARED], algorithms())
write("jwt-attacks", "jwtValidation: tokens that were made to deceive", [ACCOUNTS], attacks())
write("jwt-claims", "jwtValidation: what a token says of its time, its audience and more", [ACCOUNTS, PARTNERS], claims(), JWT_REFUSALS)
write("jwt-rfc", "jwtValidation: the examples of RFC 7515, 7519 and 8037", RFC_RESOURCES, RFC_CASES)
write("jwt-roles", "roleCheck: roles, scopes and claims of a token", [ACCOUNTS, *PEOPLE], roles(), ROLE_REFUSALS)
write("jwt-sources", "jwtValidation: where tokens come from, and where claims go", [ACCOUNTS, *PEOPLE], sources())
