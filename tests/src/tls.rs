//! A TLS client that says which name it asks for (SNI), and which certificate it shows.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

use crate::{
    http2::H2,
    pki::{Authority, Identity},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A client of one server.
#[derive(Debug)]
pub struct TlsClient {
    address: SocketAddr,
    roots: Arc<RootCertStore>,
    identity: Option<Identity>,
    sends_name: bool,
}

impl TlsClient {
    /// A client that trusts this authority.
    pub fn new(address: SocketAddr, authority: &Authority) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes())?)?;
        Ok(Self { address, roots: Arc::new(roots), identity: None, sends_name: true })
    }

    /// Shows a certificate.
    #[must_use]
    pub fn showing(mut self, identity: &Identity) -> Self {
        self.identity = Some(identity.clone());
        self
    }

    /// Asks for no name. The certificate is still checked for it.
    #[must_use]
    pub fn without_name(mut self) -> Self {
        self.sends_name = false;
        self
    }

    /// Opens a connection for this name by HTTP/2. An error if the server refuses it, or has another certificate.
    pub fn http2(&self, name: &str) -> Result<H2> {
        H2::over(self.connect(name, b"h2")?)
    }

    /// The status of a request by HTTP/1.1 for `host`, on a connection for `name`.
    pub fn http1(&self, name: &str, host: &str, path: &str) -> Result<u16> {
        let mut stream = self.connect(name, b"http/1.1")?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes())?;
        stream.flush()?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).context("no answer")?;
        Ok(std::str::from_utf8(&head)?.get(9..).context("no status")?.parse()?)
    }

    fn connect(&self, name: &str, protocol: &[u8]) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let config = ClientConfig::builder().with_root_certificates(Arc::clone(&self.roots));
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some(identity) => config.with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes())?],
                PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?,
            )?,
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        config.enable_sni = self.sends_name;
        let name = ServerName::try_from(name.to_owned())?;
        let mut connection = ClientConnection::new(Arc::new(config), name)?;
        let mut socket = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(connection, socket))
    }
}
