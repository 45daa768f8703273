//! Key sets over https: only from a server whose certificate the machine trusts, for its very name.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "test code"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../compile/tests/fixtures").join(name)
}

/// Publishes a key over https, as `localhost`.
fn key_server() -> SocketAddr {
    let certificate = CertificateDer::from_pem_file(fixture("tls/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(fixture("tls/server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap());
    let keys: Value = serde_json::from_str(&fs::read_to_string(fixture("keys.json")).unwrap()).unwrap();
    let body = json!({ "keys": [keys["p256"]["jwk"]] }).to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            // Clients that do not trust us leave during the handshake. A whole request comes in one piece.
            if stream.read(&mut [0; 4096]).is_err() {
                continue;
            }
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.flush();
        }
    });
    address
}

/// A running control plane. Dropping it ends the process.
struct Postern(Child, SocketAddr);

impl Postern {
    fn start(directory: &Path, trusted: Option<&Path>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postern"));
        command.args(["serve", "--xds", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config"]).arg(directory);
        // The filter is the one that `cargo xtask test` names.
        command.stderr(Stdio::piped());
        command.env_remove("SSL_CERT_DIR").env_remove("SSL_CERT_FILE");
        if let Some(trusted) = trusted {
            command.env("SSL_CERT_FILE", trusted);
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(|line| line.unwrap());
        let http = lines.find_map(|line| line.split_once("http=").map(|(_, rest)| rest.trim().to_owned()));
        thread::spawn(move || lines.for_each(drop));
        Self(child, http.unwrap().parse().unwrap())
    }

    fn key_sets(&self) -> Value {
        let mut stream = TcpStream::connect(self.1).unwrap();
        write!(stream, "GET /status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        status["keySets"].clone()
    }

    /// Waits until every key set was fetched or has failed.
    fn outcomes(&self) -> Value {
        for _ in 0..1_000 {
            let sets = self.key_sets();
            let done = |set: &Value| set["lastSuccess"].is_u64() || set["lastError"].is_object();
            if sets.as_array().is_some_and(|sets| sets.iter().all(done)) {
                return sets;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the keys were neither fetched nor not");
    }
}

impl Drop for Postern {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn takes_keys_only_from_a_server_that_the_machine_trusts() {
    let port = key_server().port();
    let directory = tempfile::tempdir().unwrap();
    // By name and by address: the certificate is for the name alone.
    let issuer = |name: &str, host: &str| {
        format!(
            "---\napiVersion: postern/v1\nkind: Issuer\nmetadata: {{name: {name}}}\n\
             spec: {{issuer: a, jwksUri: 'https://{host}:{port}/keys'}}\n"
        )
    };
    let text = issuer("by-name", "localhost") + &issuer("by-address", "127.0.0.1");
    fs::write(directory.path().join("issuers.yaml"), text).unwrap();

    let trusting = Postern::start(directory.path(), Some(&fixture("tls/ca.pem"))).outcomes();
    assert_eq!((&trusting[1]["keys"], &trusting[1]["lastError"]), (&json!(1), &Value::Null), "{trusting}");
    assert_eq!(trusting[0]["keys"], 0, "{trusting}");
    assert!(trusting[0]["lastError"]["message"].to_string().contains("not valid for name"), "{trusting}");

    let wary = Postern::start(directory.path(), None).outcomes();
    for set in wary.as_array().unwrap() {
        assert_eq!(set["keys"], 0, "{wary}");
        assert!(set["lastError"]["message"].to_string().contains("certificate"), "{wary}");
    }
}
