//! HTTP/1.1 in bytes.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{RawAnswer, RawRequest};

pub(super) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn encode(request: &RawRequest) -> Vec<u8> {
    let mut bytes = [&request.method, &b" "[..], &request.target, b" HTTP/1.1\r\n"].concat();
    for host in &request.hosts {
        bytes.extend([b"host: ", host.as_slice(), b"\r\n"].concat());
    }
    for (name, value) in &request.headers {
        bytes.extend([name.as_slice(), b": ", value, b"\r\n"].concat());
    }
    if let Some(body) = &request.body {
        bytes.extend(format!("content-length: {}\r\n", body.len()).into_bytes());
    }
    bytes.extend(b"connection: close\r\n\r\n");
    bytes.extend(request.body.as_deref().unwrap_or_default());
    bytes
}

/// Sends bytes and reads one answer. If the connection ends without any, the answer has no status.
pub(super) fn exchange(address: SocketAddr, bytes: &[u8]) -> Result<RawAnswer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("{address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    // Who refuses a request early may close before it has read all of it.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let mut space = [0; 16 << 10];
    loop {
        match stream.read(&mut space) {
            Ok(0) | Err(_) => break,
            Ok(size) => answer.extend(space.get(..size).unwrap_or_default()),
        }
        if is_whole(&answer) {
            break;
        }
    }
    Ok(parse(&answer))
}

/// Whether all of an answer is there. An answer without a length is taken to have no body, since Envoy closes the
/// connection much later.
fn is_whole(answer: &[u8]) -> bool {
    let Some((head, body)) = split(answer) else { return false };
    if header(&head, "transfer-encoding").is_some() {
        return body.ends_with(b"0\r\n\r\n");
    }
    let length = header(&head, "content-length").map_or(Some(0), |length| length.parse().ok());
    length.is_some_and(|length: usize| body.len() >= length)
}

fn parse(answer: &[u8]) -> RawAnswer {
    let Some((head, body)) = split(answer) else { return RawAnswer::default() };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let location = header(&head, "location");
    RawAnswer { status, location, body: String::from_utf8_lossy(body).into_owned() }
}

fn split(answer: &[u8]) -> Option<(String, &[u8])> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, body) = answer.split_at_checked(end + 4)?;
    Some((String::from_utf8_lossy(head).into_owned(), body))
}

fn header(head: &str, name: &str) -> Option<String> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(candidate, _)| candidate.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.trim().to_owned())
}
