//! A site: the quickstart's resources in a directory of their own, on free ports, to be edited at will.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result, bail, ensure};

/// The first port that tests use.
const FIRST_PORT: u16 = 20000;
const PORTS: u32 = 12000;

/// The ports that the files of this repository name.
const LISTENER_PORT: u16 = 10000;
const UPSTREAM_PORT: u16 = 10001;

/// A directory of resources and the address that its gateway listens on.
#[derive(Debug)]
pub struct Site {
    directory: PathBuf,
    listener: SocketAddr,
}

impl Site {
    /// Writes the quickstart into `directory`, for an upstream; the gateway gets `port`, or a free one for 0.
    pub fn quickstart(directory: impl Into<PathBuf>, upstream: SocketAddr, port: u16) -> Result<Self> {
        let directory = directory.into();
        fs::create_dir_all(&directory)?;
        let port = if port == 0 { free_port()? } else { port };
        let examples = repository().join("control-plane/examples/quickstart");
        for entry in fs::read_dir(&examples).with_context(|| examples.display().to_string())? {
            let entry = entry?;
            fs::copy(entry.path(), directory.join(entry.file_name()))?;
        }
        let site = Self { directory, listener: SocketAddr::from(([127, 0, 0, 1], port)) };
        site.replace("gateway.yaml", &port_field(LISTENER_PORT), &port_field(port))?;
        site.replace("gateway.yaml", &port_field(UPSTREAM_PORT), &port_field(upstream.port()))?;
        Ok(site)
    }

    /// Where the resources lie.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the gateway listens once an Envoy has it.
    pub fn listener(&self) -> SocketAddr {
        self.listener
    }

    /// The path of one of its files.
    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// Reads a file.
    pub fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.path(file)).with_context(|| file.to_owned())
    }

    /// Replaces a file atomically.
    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        write_whole(&self.directory, file, text)
    }

    /// Replaces a text that must be there.
    pub fn replace(&self, file: &str, from: &str, to: &str) -> Result<()> {
        self.write(file, &replaced(&self.read(file)?, from, to)?)
    }
}

/// Replaces a file of a directory atomically.
pub fn write_whole(directory: &Path, file: &str, text: &str) -> Result<()> {
    let draft = directory.join(format!(".{file}.draft"));
    fs::write(&draft, text)?;
    Ok(fs::rename(draft, directory.join(file))?)
}

/// A copy of `text` with `from` replaced, which must be there.
pub fn replaced(text: &str, from: &str, to: &str) -> Result<String> {
    ensure!(text.contains(from), "`{from}` is not in the text that it should be replaced in");
    Ok(text.replace(from, to))
}

/// The root of this repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// A free port below those that the system gives to whoever asks for any, which start at 32768. Each is given out once
/// in a process, and processes begin at different ports.
pub fn free_port() -> Result<u16> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let begin = process::id().wrapping_mul(97);
    for _ in 0..PORTS {
        let number = begin.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = FIRST_PORT + u16::try_from(number)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port is free")
}

fn port_field(port: u16) -> String {
    format!("port: {port}\n")
}
