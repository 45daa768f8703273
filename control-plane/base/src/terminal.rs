//! What commands write to the standard output: coloured on a terminal, plain elsewhere.

use std::io::{self, ErrorKind, Write};

/// Writes a text whole. A reader that has seen enough, such as `head`, is no error.
pub fn write(text: &str) -> io::Result<()> {
    write_line(text).map(drop)
}

/// The same, for who goes on as long as somebody reads. Says whether somebody does.
pub fn write_line(text: &str) -> io::Result<bool> {
    let mut out = anstream::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        outcome => outcome.map(|()| true),
    }
}
