//! How connections are accepted: a socket that cannot give one now is asked again, and a server never ends by it.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time,
};

/// How many connections may wait to be accepted. The system may allow fewer (`net.core.somaxconn`).
const BACKLOG: u32 = 1024;
/// How long to wait when the system is short of files or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens on an address.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The next connection. `make_room` is called when the system has no file left for one: a connection that nobody uses
/// can be given up for it.
pub async fn accept(listener: &TcpListener, make_room: impl Fn()) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted now");
                make_room();
                time::sleep(PAUSE).await;
            }
        }
    }
}

/// Whether the client gave up before it was accepted.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    matches!(
        error.kind(),
        ConnectionRefused | ConnectionAborted | ConnectionReset | BrokenPipe | Interrupted | WouldBlock
    )
}
