//! No policy and no claim can change what frames a message, so no second request reaches the upstream inside of
//! another. The upstream of these tests records every byte that it gets.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use postern_tests::{ControlPlane, Request, wait};
use ring::hmac;

use crate::chains::{Chains, MODES, Mode, Protocol, policy};

const SECRET: &[u8] = b"a shared secret of more than 32 bytes, for tests";
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: inner\r\n\r\n";

/// An upstream that answers every head that it sees, and keeps what it got.
struct Recorder {
    address: SocketAddr,
    got: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (address, got) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let kept = Arc::clone(&got);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                thread::spawn(move || serve(stream, &kept));
            }
        });
        Self { address, got }
    }

    /// Takes what came since the last call, as text.
    fn take(&self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut *self.got.lock().unwrap())).into_owned()
    }
}

/// Reads heads and the bodies that they announce, as an upstream does that trusts the framing headers.
fn serve(mut stream: TcpStream, kept: &Mutex<Vec<u8>>) {
    let (mut buffer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(end) = message_end(&buffer) {
            buffer.drain(..end);
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(size) => {
                kept.lock().unwrap().extend_from_slice(&piece[..size]);
                buffer.extend_from_slice(&piece[..size]);
            }
        }
    }
}

/// The end of the first message of a buffer, if it is complete.
fn message_end(buffer: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(buffer).to_ascii_lowercase();
    let head = text.find("\r\n\r\n")? + 4;
    let (fields, body) = text.split_at_checked(head)?;
    if fields.contains("transfer-encoding: chunked") {
        return body.find("0\r\n\r\n").map(|end| head + end + 5);
    }
    let length = fields.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let end = head + length.unwrap_or(0);
    (buffer.len() >= end).then_some(end)
}

fn token(subject: &str) -> String {
    let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
    let head = encode(r#"{"alg":"HS256","kid":"k"}"#.to_owned());
    let claims = serde_json::json!({ "iss": "accounts", "sub": subject, "exp": 4_000_000_000_u64 });
    let signed = format!("{head}.{}", encode(claims.to_string()));
    let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), signed.as_bytes());
    format!("Bearer {signed}.{}", URL_SAFE_NO_PAD.encode(code))
}

fn issuer() -> String {
    let key = URL_SAFE_NO_PAD.encode(SECRET);
    format!(
        "---\napiVersion: postern/v1\nkind: Issuer\nmetadata: {{ name: accounts }}\nspec: {{ issuer: accounts, jwks: {{ keys: [{{ \
         kty: oct, k: {key}, kid: k }}] }} }}\n"
    )
}

fn guarded(set: &str) -> String {
    let chain = format!(
        "  request:\n    - {{ policy: requestId, params: {{ header: x-id }} }}\n    - {{ policy: headers, params: {{ set: {{ {set} \
         }} }} }}"
    );
    let claims = "  request: [{ policy: jwtValidation, params: { claimsToHeaders: { sub: x-user } } }]";
    [issuer(), policy("a", &chain), policy("claims", claims)].concat()
}

/// Checks that exactly one request reached the upstream, with its own body.
fn check_one(upstream: &Recorder, path: &str, body: &str) {
    let got = upstream.take();
    let lines: Vec<_> = got.split("\r\n").filter(|line| line.ends_with(" HTTP/1.1")).collect();
    // The body may have such a line in it: what counts is that the upstream takes it for a body.
    let inside = lines.iter().filter(|line| body.contains(**line)).count();
    assert_eq!(lines.len() - inside, 1, "{got}");
    assert!(lines[0].contains(path), "{got}");
    let head = got.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
    let lengths: Vec<_> = head.lines().filter(|line| line.starts_with("content-length:")).collect();
    let chunked = head.lines().filter(|line| line.starts_with("transfer-encoding:")).count();
    match chunked {
        0 if body.is_empty() => assert!(lengths.is_empty() || lengths == ["content-length: 0"], "{got}"),
        0 => assert_eq!(lengths, [format!("content-length: {}", body.len())], "{got}"),
        one => assert!(one == 1 && lengths.is_empty(), "{got}"),
    }
}

#[test]
fn no_policy_smuggles_a_request_upstream() {
    for mode in MODES {
        check_that_no_policy_smuggles(mode);
    }
}

fn check_that_no_policy_smuggles(mode: Mode) {
    let upstream = Recorder::start();
    let chains = Chains::start_as(mode, upstream.address, &["a", "claims"], &guarded("x-guard: \"1\""));
    let body = format!("hello{SMUGGLED}");
    for set in ["content-length: \"5\"", "Transfer-Encoding: identity", "connection: upgrade", "te: trailers"] {
        let before = chains.control_plane.log().len();
        chains.write(&guarded(set));
        wait::until_true("the refusal", || {
            let log = chains.control_plane.log();
            Ok(log[before..].iter().any(|line| line.contains("cannot be set: it frames a message")))
        })
        .unwrap();
        upstream.take();
        assert_eq!(chains.send(&Request::new("POST", "/a/1").body(body.as_str())).status, 200);
        check_one(&upstream, "/a/1", &body);
        assert_eq!(chains.send(&Request::new("POST", "/a/2").chunked(body.as_str())).status, 200);
        check_one(&upstream, "/a/2", &body);
        let by_http2 = Request::new("POST", "/a/3").body(body.as_str());
        assert_eq!(chains.send_by(Protocol::Http2, &by_http2).status, 200);
        check_one(&upstream, "/a/3", &body);
    }
}

#[test]
fn no_claim_smuggles_a_request_upstream() {
    let upstream = Recorder::start();
    let chains = Chains::start(upstream.address, &["a", "claims"], &guarded("x-guard: \"1\""));
    upstream.take();
    for bad in ["\r\n", "\n", "\r", "\0"] {
        let token = token(&format!("me{bad}content-length: 5{bad}{bad}{SMUGGLED}"));
        let answer = chains.send(&Request::get("/claims/1").header("authorization", &token));
        assert_eq!(answer.status, 401, "{bad:?}: {answer:?}");
        let by_http2 = Request::new("POST", "/claims/2").header("authorization", &token).body("hello");
        assert_eq!(chains.send_by(Protocol::Http2, &by_http2).status, 401, "{bad:?}");
        assert_eq!(upstream.take(), "", "{bad:?}");
    }
    let good = token("me");
    assert_eq!(chains.send(&Request::get("/claims/3").header("authorization", &good)).status, 200);
    let got = upstream.take();
    assert!(got.to_ascii_lowercase().contains("\r\nx-user: me\r\n"), "{got}");
}

#[test]
fn admission_names_the_place_of_every_header_that_frames_something() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("p.yaml");
    for name in [
        "Content-Length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
    ] {
        let chain = format!("  request:\n    - policy: headers\n      params: {{ remove: [{name}] }}");
        std::fs::write(&file, policy("a", &chain)).unwrap();
        let output = ControlPlane::command().unwrap().arg("validate").arg(directory.path()).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let expect = format!("header `{name}` cannot be removed: it frames a message or a connection");
        assert!(!output.status.success() && said.contains(&expect), "{said}");
        assert!(said.contains("p.yaml:9") && said.contains("spec.request[0].params.remove[0]"), "{said}");
    }
}
