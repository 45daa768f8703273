//! The upstream of all cases: one thread for each connection, and prepared answers. The answer tells only whether the
//! request was guarded, so that a case can be checked.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use anyhow::Result;

use super::policies::{GUARD, KEY_HEADER};

/// The answer to a request that was edited: the key removed, the guard's header set.
pub(super) const GUARDED: &str = "guarded";
/// The answer to any other request.
pub(super) const PLAIN: &str = "plain";

/// Starts it on a free port. It ends with the process.
pub(super) fn start() -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection ends when Envoy ends it; there is nobody to tell.
            thread::spawn(move || serve(stream));
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let [guarded, plain] = [GUARDED, PLAIN].map(answer);
    let set = format!("\r\n{}: {}\r\n", GUARD.0, GUARD.1);
    let key = format!("\r\n{KEY_HEADER}: ");
    let mut buffer = [0; 8192];
    let mut filled = 0;
    loop {
        let size = stream.read(buffer.get_mut(filled..).unwrap_or_default())?;
        if size == 0 {
            return Ok(());
        }
        filled += size;
        let request = buffer.get(..filled).unwrap_or_default();
        // A GET has no body, and Envoy sends no second request before the answer.
        if request.ends_with(b"\r\n\r\n") {
            let is_guarded = contains(request, set.as_bytes()) && !contains(request, key.as_bytes());
            stream.write_all(if is_guarded { &guarded } else { &plain })?;
            filled = 0;
        }
    }
}

fn answer(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
