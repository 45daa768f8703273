//! HTTP/2 in frames (RFC 9113): one request on a connection. Headers go out as literals without indexing (RFC 7541,
//! section 6.2.2), so that any bytes can be sent; of the answer's, only `:status` is read.

use std::{
    io::{BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
};

use anyhow::{Context, Result};

use super::{RawAnswer, RawRequest, http1::PATIENCE};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The pseudo-headers and headers, in the order in which they go out.
pub(super) fn fields(request: &RawRequest) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pseudo = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
    let mut fields = vec![pseudo(":method", &request.method), pseudo(":scheme", &request.scheme)];
    let mut hosts = request.hosts.iter();
    fields.extend(hosts.next().map(|host| pseudo(":authority", host)));
    fields.push(pseudo(":path", &request.target));
    fields.extend(hosts.map(|host| pseudo("host", host)));
    fields.extend(request.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
    fields
}

pub(super) fn exchange(address: SocketAddr, request: &RawRequest) -> Result<RawAnswer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("{address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let block: Vec<u8> = fields(request).iter().flat_map(|(name, value)| literal(name, value)).collect();
    let ends = if request.body.is_none() { END_STREAM } else { 0 };
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(HEADERS, END_HEADERS | ends, 1, &block)].concat();
    if let Some(body) = &request.body {
        bytes.extend(frame(DATA, END_STREAM, 1, body));
    }
    let _ = stream.write_all(&bytes);
    read(&mut BufReader::new(stream))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [length.get(1..).unwrap_or_default(), &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn literal(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[0][..], &string(name), &string(value)].concat()
}

/// A string without Huffman coding.
fn string(text: &[u8]) -> Vec<u8> {
    const MOST: usize = 127;
    let mut bytes = Vec::new();
    if text.len() < MOST {
        bytes.push(u8::try_from(text.len()).unwrap_or_default());
    } else {
        bytes.push(127);
        let mut rest = text.len() - MOST;
        while rest >= 128 {
            bytes.push(u8::try_from(rest % 128 + 128).unwrap_or_default());
            rest /= 128;
        }
        bytes.push(u8::try_from(rest).unwrap_or_default());
    }
    [bytes.as_slice(), text].concat()
}

/// Reads frames until the stream or the connection has ended.
fn read(stream: &mut BufReader<TcpStream>) -> Result<RawAnswer> {
    let (mut answer, mut body) = (RawAnswer::default(), Vec::new());
    while let Some((kind, flags, payload)) = read_frame(stream) {
        match kind {
            HEADERS if answer.status.is_none() => answer.status = status(&payload),
            DATA => body.extend(payload),
            SETTINGS if flags & ACK == 0 => stream.get_mut().write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            RST_STREAM | GOAWAY => break,
            _ => {}
        }
        if matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
            break;
        }
    }
    answer.body = String::from_utf8_lossy(&body).into_owned();
    Ok(answer)
}

fn read_frame(stream: &mut impl Read) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let [high, middle, low, kind, flags, ..] = head;
    let length = u32::from_be_bytes([0, high, middle, low]);
    let mut payload = vec![0; usize::try_from(length).ok()?];
    stream.read_exact(&mut payload).ok()?;
    Some((kind, flags, payload))
}

/// `:status`, which stands first: indexed (RFC 7541, appendix A), or a literal of three digits.
fn status(block: &[u8]) -> Option<u16> {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    match block {
        // A change of the table's size.
        [update, rest @ ..] if update >> 5 == 1 => status(rest),
        [index @ 0x88..=0x8e, ..] => INDEXED.get(usize::from(index - 0x88)).copied(),
        [0x08 | 0x18 | 0x48, length, text @ ..] if length & 0x80 == 0 => {
            str::from_utf8(text.get(..usize::from(*length))?).ok()?.parse().ok()
        }
        [0x08 | 0x18 | 0x48, length, text @ ..] => huffman_digits(text.get(..usize::from(length & 0x7f))?),
        _ => None,
    }
}

/// Three digits in Huffman code: `0` to `2` have five bits, the others six.
fn huffman_digits(text: &[u8]) -> Option<u16> {
    let bits = text.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte));
    let mut left = u32::try_from(text.len()).ok()? * 8;
    let mut number = 0;
    for _ in 0..3 {
        let five = (bits >> left.checked_sub(5)?) & 0x1f;
        let (digit, size) =
            if five < 3 { (five, 5) } else { (((bits >> left.checked_sub(6)?) & 0x3f).checked_sub(0x16)?, 6) };
        number = number * 10 + u16::try_from(digit).ok().filter(|digit| *digit < 10)?;
        left -= size;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_status_in_every_coding() {
        assert_eq!(status(&[0x88, 0x40]), Some(200));
        assert_eq!(status(&[0x20, 0x8d]), Some(404));
        assert_eq!(status(&[0x48, 3, b'4', b'0', b'1']), Some(401));
        // RFC 7541, C.6.1: `302`; and `307` of C.6.2.
        assert_eq!(status(&[0x48, 0x82, 0x64, 0x02]), Some(302));
        assert_eq!(status(&[0x48, 0x83, 0x64, 0x0e, 0xff]), Some(307));
    }
}
