//! Reads files whose paths others chose: regular files of bounded size only. A FIFO or device neither blocks the reader
//! nor is read without end.

use std::{
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// The content of a regular file of at most `most` bytes. Symbolic links are followed. An error if it is not a regular
/// file, or is larger.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Non-blocking, because opening a FIFO waits for a writer. The type is checked on the open file, since the path may
    // be replaced meanwhile.
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
