//! Listens and accepts connections. A failure to accept is logged and retried after a pause, and never ends a server.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time,
};

/// How many connections may wait to be accepted. The system may allow fewer (`net.core.somaxconn`).
const BACKLOG: u32 = 1024;
/// How long to wait before the next attempt when the system is short of files or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// Binds a listener to an address, with `SO_REUSEADDR`. An error if the address cannot be bound.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Waits for the next connection. If the system cannot give one, for example because the process has no file left,
/// calls `make_room`, which may close an idle connection, and tries again after a pause. Never fails.
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

/// Whether this connection failed, and not the listener: then the next one is accepted without a pause.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    matches!(
        error.kind(),
        ConnectionRefused | ConnectionAborted | ConnectionReset | BrokenPipe | Interrupted | WouldBlock
    )
}
