//! Reads files that others chose: regular ones, of bounded size. A FIFO or a device neither holds the reader up nor is read
//! without end.

use std::{
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// What a file holds, if it is a regular one and has at most so many bytes. Links are followed.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Without waiting: who opens a FIFO waits for a writer otherwise. What it is, is asked of what was opened, since the name
    // can be somebody else's meanwhile.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file: only regular files are read"));
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("larger than {most} bytes: no more are read")));
    }
    Ok(bytes)
}
