//! Where a node cache listens: a loopback address or a unix socket that only this user can connect to.

use std::{
    fmt, fs,
    io::{self, IoSlice},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixStream as BlockingStream,
    },
    path::{Path, PathBuf},
    pin::Pin,
    str::FromStr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use postern_base::accept;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::mpsc,
    time,
};
use tokio_stream::{Stream, wrappers::ReceiverStream};

use crate::xds::service::{Connection, Lines};

/// How an address of a unix socket begins.
const UNIX: &str = "unix:";
/// Who calls on a unix socket.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The pause after the system could not give a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Where to listen, or to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// An IP address and port.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// A text that is no address.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an address such as `127.0.0.1:18002` or `unix:/run/postern/cache.sock`")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError(text.to_owned());
        match text.strip_prefix(UNIX) {
            Some("") => Err(error()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| error()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(formatter, "{address}"),
            Self::Unix(path) => write!(formatter, "{UNIX}{}", path.display()),
        }
    }
}

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The address is not a loopback address.
    #[error("{0} is not a loopback address: TLS is not there yet, so only loopback and unix sockets are served")]
    NotLoopback(SocketAddr),
    /// Something else has that name.
    #[error("cannot listen on {0}: it is in use, or it is something else than a socket")]
    InUse(Address),
    /// An error of the operating system.
    #[error("cannot listen on {address}: {error}")]
    Io {
        /// The address.
        address: Address,
        /// The error.
        error: io::Error,
    },
}

/// An open socket.
#[derive(Debug)]
pub struct Socket {
    listener: Listener,
    address: Address,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Socket {
    /// Opens a socket; port 0 picks a free one. Replaces a unix socket that nobody listens on any more.
    pub fn bind(address: &Address) -> Result<Self, SocketError> {
        let failed = |error| SocketError::Io { address: address.clone(), error };
        match address {
            Address::Tcp(tcp) if !tcp.ip().is_loopback() => Err(SocketError::NotLoopback(*tcp)),
            Address::Tcp(tcp) => {
                let listener = accept::listen(*tcp).map_err(failed)?;
                let address = Address::Tcp(listener.local_addr().map_err(failed)?);
                Ok(Self { listener: Listener::Tcp(listener), address })
            }
            Address::Unix(path) => {
                if path.exists() && !is_abandoned(path) {
                    return Err(SocketError::InUse(address.clone()));
                }
                let listener = Listener::Unix(bind_private(path).map_err(failed)?);
                Ok(Self { listener, address: address.clone() })
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The connections of clients. An error of accepting a connection is retried, and does not end the stream.
    pub(super) fn incoming(self, lines: Arc<Lines>) -> impl Stream<Item = io::Result<Connection<Caller>>> {
        let (sender, receiver) = mpsc::channel(64);
        tokio::spawn(async move {
            loop {
                let connection = tokio::select! {
                    connection = self.listener.accept(&lines) => connection,
                    () = sender.closed() => return,
                };
                if sender.send(Ok(connection)).await.is_err() {
                    return;
                }
            }
        });
        ReceiverStream::new(receiver)
    }
}

impl Listener {
    async fn accept(&self, lines: &Lines) -> Connection<Caller> {
        match self {
            Self::Tcp(listener) => {
                let (tcp, peer) = accept::accept(listener, || lines.make_room()).await;
                if let Err(error) = tcp.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY cannot be set");
                }
                Connection::of(Caller::Tcp(tcp), peer.ip(), lines)
            }
            Self::Unix(listener) => loop {
                match listener.accept().await {
                    Ok((unix, _)) => return Connection::of(Caller::Unix(unix), NOBODY, lines),
                    Err(error) => {
                        tracing::warn!(%error, "a connection cannot be accepted now");
                        lines.make_room();
                        time::sleep(PAUSE).await;
                    }
                }
            },
        }
    }
}

/// Whether a path is a socket that nobody listens on.
fn is_abandoned(path: &Path) -> bool {
    // Of a regular file, connecting says the same.
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && BlockingStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Listens on a unix socket that has its final permissions when it gets its name.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let draft = path.with_extension("new");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&draft)?;
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o600))?;
    fs::rename(&draft, path)?;
    Ok(listener)
}

/// A client's end of a connection.
#[derive(Debug)]
pub(super) enum Caller {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsyncRead for Caller {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(context, buffer),
            Self::Unix(unix) => Pin::new(unix).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Caller {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Self::Unix(unix) => Pin::new(unix).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(context, bytes),
            Self::Unix(unix) => Pin::new(unix).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(context),
            Self::Unix(unix) => Pin::new(unix).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(context),
            Self::Unix(unix) => Pin::new(unix).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_addresses() {
        assert_eq!("unix:/a/b".parse::<Address>().unwrap(), Address::Unix("/a/b".into()));
        assert_eq!("127.0.0.1:7".parse::<Address>().unwrap().to_string(), "127.0.0.1:7");
        for bad in ["", "unix:", "localhost", "127.0.0.1", "/a/b"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn listens_for_this_user_alone_and_replaces_only_what_is_abandoned() {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Unix(folder.path().join("s"));
        let socket = Socket::bind(&address).unwrap();
        let mode = fs::metadata(folder.path().join("s")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(Socket::bind(&address), Err(SocketError::InUse(_))));
        drop(socket);
        Socket::bind(&address).unwrap();
        let file = Address::Unix(folder.path().join("file"));
        fs::write(folder.path().join("file"), "x").unwrap();
        assert!(matches!(Socket::bind(&file), Err(SocketError::InUse(_))));
        assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"x");
        let everywhere = Socket::bind(&"0.0.0.0:0".parse().unwrap()).unwrap_err().to_string();
        assert!(everywhere.contains("0.0.0.0:0 is not a loopback address"), "{everywhere}");
    }
}
