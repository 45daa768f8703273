//! Standard output of commands: coloured on a terminal, plain elsewhere.

use std::io::{self, ErrorKind, Write};

/// Writes the whole text. A reader that closes the pipe early, such as `head`, is not an error.
pub fn write(text: &str) -> io::Result<()> {
    write_line(text).map(drop)
}

/// Like [`write()`], for output that goes on. Returns `false` once the reader has closed the pipe.
pub fn write_line(text: &str) -> io::Result<bool> {
    let mut out = anstream::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        outcome => outcome.map(|()| true),
    }
}
