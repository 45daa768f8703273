//! What a host tells the engine about a message. Bytes as they came: nothing here assumes UTF-8.

use std::ops::Range;

/// The two times at which a chain can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Before the request goes upstream.
    Request,
    /// Before the response goes downstream.
    Response,
}

/// The headers of one message, in order, names in lower case as Envoy has them, pseudo-headers among them.
///
/// They live in the one buffer that the host handed over, so that taking them costs no copy a header.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    buffer: Vec<u8>,
    fields: Vec<Field>,
}

/// Where a header lies in a buffer.
#[derive(Debug, Clone)]
pub struct Field {
    /// The name's place.
    pub name: Range<usize>,
    /// The value's place.
    pub value: Range<usize>,
}

impl Headers {
    /// Headers whose names and values lie in `buffer`. A place outside of it reads as empty.
    pub fn new(buffer: Vec<u8>, fields: Vec<Field>) -> Self {
        Self { buffer, fields }
    }

    /// Every header, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (self.slice(&field.name), self.slice(&field.value)))
    }

    /// The values of one header, in order. `name` is in lower case.
    pub fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        // Most names differ in length already, which is cheap to see.
        let is_it = move |field: &&Field| field.name.len() == name.len() && self.slice(&field.name) == name.as_bytes();
        self.fields.iter().filter(is_it).map(|field| self.slice(&field.value))
    }

    fn slice(&self, place: &Range<usize>) -> &[u8] {
        self.buffer.get(place.clone()).unwrap_or_default()
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut headers = Self::default();
        for (name, value) in pairs {
            let name = append(&mut headers.buffer, name.as_ref());
            let value = append(&mut headers.buffer, value.as_ref());
            headers.fields.push(Field { name, value });
        }
        headers
    }
}

fn append(buffer: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let start = buffer.len();
    buffer.extend_from_slice(bytes);
    start..buffer.len()
}

/// A fact about a stream that is not in its headers, read from the host one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Property {
    /// `request.protocol`.
    RequestProtocol,
    /// `request.size`, an integer.
    RequestSize,
    /// `source.address`.
    SourceAddress,
    /// `source.port`, an integer.
    SourcePort,
    /// `destination.address`.
    DestinationAddress,
    /// `destination.port`, an integer.
    DestinationPort,
    /// `connection.mtls`, a truth value.
    Mtls,
    /// `connection.requested_server_name`.
    RequestedServerName,
    /// `connection.tls_version`.
    TlsVersion,
    /// `connection.uri_san_peer_certificate`: the source's SPIFFE identity.
    PeerUriSan,
    /// `xds.cluster_name`.
    ClusterName,
    /// `xds.virtual_host_name`.
    VirtualHostName,
    /// All URI SANs of the peer's certificate, joined by commas: its tags are among them. Envoy has no attribute for
    /// them, so the listener leaves them in filter state.
    PeerUriSans,
}

impl Property {
    /// Every property.
    pub const ALL: [Self; 13] = [
        Self::RequestProtocol,
        Self::RequestSize,
        Self::SourceAddress,
        Self::SourcePort,
        Self::DestinationAddress,
        Self::DestinationPort,
        Self::Mtls,
        Self::RequestedServerName,
        Self::TlsVersion,
        Self::PeerUriSan,
        Self::ClusterName,
        Self::VirtualHostName,
        Self::PeerUriSans,
    ];

    /// What Envoy calls it.
    pub const fn path(self) -> [&'static str; 2] {
        match self {
            Self::RequestProtocol => ["request", "protocol"],
            Self::RequestSize => ["request", "size"],
            Self::SourceAddress => ["source", "address"],
            Self::SourcePort => ["source", "port"],
            Self::DestinationAddress => ["destination", "address"],
            Self::DestinationPort => ["destination", "port"],
            Self::Mtls => ["connection", "mtls"],
            Self::RequestedServerName => ["connection", "requested_server_name"],
            Self::TlsVersion => ["connection", "tls_version"],
            Self::PeerUriSan => ["connection", "uri_san_peer_certificate"],
            Self::ClusterName => ["xds", "cluster_name"],
            Self::VirtualHostName => ["xds", "virtual_host_name"],
            Self::PeerUriSans => ["filter_state", "postern.peer_uri_sans"],
        }
    }
}

/// What a step must be given before it can run, so that a host fetches nothing else, and nothing twice: a set, as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs(u32);

/// The bit of the first property; below are the others.
const FIRST_PROPERTY: u32 = 8;

impl Needs {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// The headers of the request.
    pub const REQUEST_HEADERS: Self = Self(1);
    /// The headers of the response.
    pub const RESPONSE_HEADERS: Self = Self(1 << 1);
    /// The time.
    pub const NOW: Self = Self(1 << 2);
    /// The whole body of the request.
    pub const BODY: Self = Self(1 << 3);
    /// Random bytes.
    pub const RANDOM: Self = Self(1 << 4);
    /// Whether the request has a body.
    pub const HAS_BODY: Self = Self(1 << 5);

    /// What the caller's token says. No host is asked for it: a step of the chain finds it out.
    pub(crate) const CLAIMS: Self = Self(1 << 6);

    /// A property.
    pub const fn of(property: Property) -> Self {
        Self(1 << FIRST_PROPERTY << (property as u8))
    }

    /// All of it if so, else nothing.
    #[must_use]
    pub const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }

    /// Whether all of these are among them.
    pub const fn has(self, these: Self) -> bool {
        these.without(self).is_empty()
    }

    /// The properties among them.
    pub fn properties(self) -> impl Iterator<Item = Property> {
        Property::ALL.into_iter().filter(move |property| self.has(Self::of(*property)))
    }

    /// Whether a property is among them.
    pub const fn has_properties(self) -> bool {
        self.0 >> FIRST_PROPERTY != 0
    }

    /// Both together.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What of these is not among `given`.
    #[must_use]
    pub const fn without(self, given: Self) -> Self {
        Self(self.0 & !given.0)
    }

    /// What of these a host can tell only while it has the request.
    #[must_use]
    pub(crate) const fn of_request(self) -> Self {
        Self(self.0 & (Self::REQUEST_HEADERS.0 | Self::BODY.0))
    }

    /// What of these costs a host next to nothing, so that it is asked for with the rest and not in a turn of its own.
    #[must_use]
    pub(crate) const fn cheap(self) -> Self {
        Self(self.0 & (Self::NOW.0 | Self::HAS_BODY.0))
    }

    /// Whether there is nothing among them.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What a host has provided.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The request's headers.
    pub request_headers: Headers,
    /// The response's headers.
    pub response_headers: Headers,
    /// Nanoseconds since 1970.
    pub now: u64,
    /// The request's body.
    pub body: Vec<u8>,
    /// Bytes that nobody can guess.
    pub random: [u8; 16],
    /// Whether the request has a body, or may have one.
    pub has_body: bool,
    properties: Vec<(Property, Vec<u8>)>,
}

impl Inputs {
    /// All that there is to know of a request but its properties, at a time in nanoseconds since 1970.
    pub fn of_request(request_headers: Headers, body: Option<Vec<u8>>, now: u64) -> Self {
        Self { request_headers, has_body: body.is_some(), body: body.unwrap_or_default(), now, ..Self::default() }
    }

    /// Takes a property over. One that the host does not have is not set.
    pub fn set(&mut self, property: Property, value: Vec<u8>) {
        self.properties.push((property, value));
    }

    /// A property's bytes, as the host writes them.
    pub fn property(&self, property: Property) -> Option<&[u8]> {
        self.properties.iter().find(|(candidate, _)| *candidate == property).map(|(_, value)| value.as_slice())
    }

    /// Takes over what another has, which must be what this one was missing.
    pub(crate) fn absorb(&mut self, other: Self, given: Needs) {
        if given.has(Needs::REQUEST_HEADERS) {
            self.request_headers = other.request_headers;
        }
        if given.has(Needs::RESPONSE_HEADERS) {
            self.response_headers = other.response_headers;
        }
        if given.has(Needs::NOW) {
            self.now = other.now;
        }
        if given.has(Needs::BODY) {
            self.body = other.body;
        }
        if given.has(Needs::HAS_BODY) {
            self.has_body = other.has_body;
        }
        if given.has(Needs::RANDOM) {
            self.random = other.random;
        }
        self.properties.extend(other.properties);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_repeated_headers_in_order() {
        let headers: Headers = [("a", "1"), ("b", "2"), ("a", "3")].into_iter().collect();
        assert_eq!(headers.values("a").collect::<Vec<_>>(), [b"1", b"3"]);
        assert_eq!(headers.values("c").count(), 0);
    }

    #[test]
    fn reads_a_place_outside_the_buffer_as_empty() {
        let headers = Headers::new(b"name".to_vec(), vec![Field { name: 0..4, value: 4..9 }]);
        assert_eq!(headers.values("name").collect::<Vec<_>>(), [b""]);
    }

    #[test]
    fn asks_for_what_is_missing_only() {
        let given = Needs::of(Property::Mtls);
        let needs = Needs::NOW.union(Needs::of(Property::SourcePort)).union(given);
        let missing = needs.without(given);
        assert_eq!(missing.properties().collect::<Vec<_>>(), [Property::SourcePort]);
        assert!(missing.has(Needs::NOW) && missing.without(missing).is_empty());
        assert_eq!(missing.union(given), needs);
    }
}
