//! An HTTP/2 client that sends exactly the frames that it is told to, in the clear or over a connection that it is given. It keeps no table of headers, so that
//! every header block stands for itself.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, bail};

const PATIENCE: Duration = Duration::from_secs(20);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The setting for the size of the peer's header table: 0.
const NO_TABLE: [u8; 6] = [0, 1, 0, 0, 0, 0];

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
/// The flow-control window before the other side changes it.
const FIRST_WINDOW: u32 = 65_535;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    /// It was answered.
    Answered {
        /// The status.
        status: u16,
        /// The body, with what is not UTF-8 replaced.
        body: String,
    },
    /// The stream was reset, with this code.
    Reset(u32),
    /// The connection was closed.
    Closed,
}

impl StreamEnd {
    /// The status of the answer, if there is one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answered { status, .. } => Some(*status),
            Self::Reset(_) | Self::Closed => None,
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct H2 {
    stream: Box<dyn Wire>,
    next: u32,
}

/// A connection.
pub trait Wire: Read + Write + Debug + Send {}

impl<T: Read + Write + Debug + Send> Wire for T {}

/// A frame that came.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl H2 {
    /// Opens a connection.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Self::over(stream)
    }

    /// Starts on a connection that is open.
    pub fn over(mut stream: impl Wire + 'static) -> Result<Self> {
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &NO_TABLE)].concat())?;
        stream.flush()?;
        Ok(Self { stream: Box::new(stream), next: 1 })
    }

    /// Starts a request, of which a body may follow; returns its stream.
    pub fn start(&mut self, headers: &[(&str, &str)]) -> Result<u32> {
        self.start_block(&block(headers), false)
    }

    /// Starts a request with a header block as it is, which may be larger than a frame.
    pub fn start_block(&mut self, block: &[u8], end: bool) -> Result<u32> {
        let stream = self.next;
        self.next += 2;
        let mut chunks: Vec<_> = block.chunks(16_000).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let mut bytes = Vec::new();
        for (index, chunk) in chunks.iter().enumerate() {
            let kind = if index == 0 { HEADERS } else { CONTINUATION };
            let last = if index + 1 == chunks.len() { END_HEADERS } else { 0 };
            let ends = if index == 0 && end { END_STREAM } else { 0 };
            bytes.extend(frame(kind, last | ends, stream, chunk));
        }
        self.stream.write_all(&bytes)?;
        Ok(stream)
    }

    /// Sends a part of a body, of at most 16 KB.
    pub fn data(&mut self, stream: u32, bytes: &[u8], end: bool) -> Result<()> {
        Ok(self.stream.write_all(&frame(DATA, if end { END_STREAM } else { 0 }, stream, bytes))?)
    }

    /// Sends a request without a body, and reads its outcome.
    pub fn request(&mut self, headers: &[(&str, &str)]) -> Result<StreamEnd> {
        let stream = self.start_block(&block(headers), true)?;
        self.outcome(stream)
    }

    /// Reads until a request has ended. Frames of others are passed over.
    pub fn outcome(&mut self, stream: u32) -> Result<StreamEnd> {
        let (mut status, mut body) = (None, Vec::new());
        loop {
            let Some(frame) = self.read()? else { return Ok(StreamEnd::Closed) };
            match frame.kind {
                GO_AWAY => return Ok(StreamEnd::Closed),
                RESET if frame.stream == stream => return Ok(StreamEnd::Reset(number(&frame.payload)?)),
                HEADERS if frame.stream == stream => status = status.or(Some(read_status(&frame.payload)?)),
                DATA if frame.stream == stream => body.extend(&frame.payload),
                _ => continue,
            }
            if frame.flags & END_STREAM != 0 {
                let status = status.context("the answer has no status")?;
                return Ok(StreamEnd::Answered { status, body: String::from_utf8_lossy(&body).into_owned() });
            }
        }
    }

    /// Sends a body of any size, as fast as the other side takes it.
    pub fn upload(&mut self, stream: u32, body: &[u8]) -> Result<()> {
        let (mut own, mut all) = (FIRST_WINDOW, FIRST_WINDOW);
        let mut rest = body;
        while !rest.is_empty() {
            let size = usize::try_from(own.min(all).min(16_000))?.min(rest.len());
            if size == 0 {
                let frame = self.read()?.context("the connection was closed")?;
                match (frame.kind, frame.stream) {
                    (WINDOW_UPDATE, 0) => all += number(&frame.payload)?,
                    (WINDOW_UPDATE, other) if other == stream => own += number(&frame.payload)?,
                    (SETTINGS, _) if frame.flags & 1 == 0 => {
                        let window = read_settings(&frame.payload).get(&4).copied().unwrap_or(FIRST_WINDOW);
                        own = (own + window).saturating_sub(FIRST_WINDOW);
                    }
                    (GO_AWAY | RESET, _) => bail!("the upload was refused"),
                    _ => {}
                }
                continue;
            }
            let (piece, after) = rest.split_at(size);
            self.data(stream, piece, after.is_empty())?;
            let sent = u32::try_from(size)?;
            (own, all, rest) = (own - sent, all - sent, after);
        }
        Ok(())
    }

    /// The settings of the other side, by number.
    pub fn settings(&mut self) -> Result<BTreeMap<u16, u32>> {
        loop {
            let frame = self.read()?.context("the connection was closed")?;
            if frame.kind == SETTINGS && frame.flags & 1 == 0 {
                return Ok(read_settings(&frame.payload));
            }
        }
    }

    /// Waits until the other side has read everything so far.
    pub fn settle(&mut self) -> Result<()> {
        self.stream.write_all(&frame(PING, 0, 0, &[7; 8]))?;
        loop {
            match self.read()? {
                Some(frame) if frame.kind == PING => return Ok(()),
                Some(frame) if frame.kind != GO_AWAY => {}
                _ => bail!("the connection was closed"),
            }
        }
    }

    fn read(&mut self) -> Result<Option<Frame>> {
        let mut head = [0; 9];
        if self.stream.read_exact(&mut head).is_err() {
            return Ok(None);
        }
        let [a, b, c, kind, flags, rest @ ..] = head;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c]))?];
        self.stream.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes(rest);
        if kind == DATA && !payload.is_empty() {
            // Take as much again.
            let size = u32::try_from(payload.len())?.to_be_bytes();
            self.stream
                .write_all(&[frame(WINDOW_UPDATE, 0, 0, &size), frame(WINDOW_UPDATE, 0, stream, &size)].concat())?;
        }
        if kind == SETTINGS && flags & 1 == 0 {
            self.stream.write_all(&frame(SETTINGS, 1, 0, &[]))?;
        }
        Ok(Some(Frame { kind, flags, stream, payload }))
    }
}

/// A header block: every header in full, none of them kept.
pub fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            length(&mut block, text.len());
            block.extend(text.as_bytes());
        }
    }
    block
}

/// A header block that makes the other side keep one header, and then repeats it `times` times, at one byte each.
pub fn repeating(headers: &[(&str, &str)], kept: (&str, &str), times: usize) -> Vec<u8> {
    let mut block = block(headers);
    block.push(0x40);
    for text in [kept.0, kept.1] {
        length(&mut block, text.len());
        block.extend(text.as_bytes());
    }
    block.extend(vec![0x80 | 62; times]);
    block
}

/// A length in seven bits and as many bytes as it takes (RFC 7541, section 5.1).
fn length(block: &mut Vec<u8>, length: usize) {
    if length < 127 {
        block.push(u8::try_from(length).unwrap_or_default());
        return;
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).unwrap_or_default() | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap_or_default());
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let [_, a, b, c] = size;
    [&[a, b, c, kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

fn read_settings(payload: &[u8]) -> BTreeMap<u16, u32> {
    let (settings, _) = payload.as_chunks::<6>();
    settings.iter().map(|[a, b, rest @ ..]| (u16::from_be_bytes([*a, *b]), u32::from_be_bytes(*rest))).collect()
}

fn number(bytes: &[u8]) -> Result<u32> {
    Ok(u32::from_be_bytes(bytes.get(..4).context("the frame is too short")?.try_into()?))
}

/// The status, which is the first header of an answer (RFC 7541, appendices A and B).
fn read_status(block: &[u8]) -> Result<u16> {
    let start = block.iter().position(|byte| byte >> 5 != 1).context("an empty header block")?;
    let block = block.get(start..).unwrap_or_default();
    let known = [200, 204, 206, 304, 400, 404, 500];
    match block {
        [first @ 0x88..=0x8e, ..] => known.get(usize::from(first - 0x88)).copied().context("an unknown status"),
        [0x48 | 0x08 | 0x18, size, text @ ..] => {
            let text = text.get(..usize::from(size & 0x7f)).context("the status is cut")?;
            if size & 0x80 == 0 { Ok(std::str::from_utf8(text)?.parse()?) } else { digits(text) }
        }
        _ => bail!("the answer starts with {block:02x?}"),
    }
}

/// Three digits in Huffman's code: five bits for 0 to 2, six for the others.
fn digits(text: &[u8]) -> Result<u16> {
    let mut bits = text.iter().flat_map(|byte| (0..8).rev().map(move |place| u16::from(byte >> place & 1)));
    let mut status = 0;
    for _ in 0..3 {
        let five = bits.by_ref().take(5).fold(0, |code, bit| code << 1 | bit);
        let digit =
            if five < 3 { five } else { (five << 1 | bits.next().context("the status is cut")?) - 0b01_1001 + 3 };
        status = status * 10 + digit;
    }
    Ok(status)
}
