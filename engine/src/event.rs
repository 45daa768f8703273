//! What a host tells the engine about a message, in bytes as they came. Nothing here assumes UTF-8.

use crate::rare::Rare;

/// The two phases in which a chain can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Before the request goes upstream.
    Request,
    /// Before the response goes downstream.
    Response,
}

impl Phase {
    /// What users call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// The headers of one message, in order, with names in lower case as Envoy has them, pseudo-headers included.
///
/// They stay in the one buffer that the host handed over, in proxy-wasm's format for a list of pairs: a count, the
/// sizes of every name and value, then each of them followed by a NUL; all numbers are little-endian `u32`. Nothing is
/// copied or indexed, since most chains look at one or two of a dozen headers.
#[derive(Debug, Clone, Default)]
pub struct Headers(Vec<u8>);

/// The sizes of a name and its value.
type Sizes = [u8; 8];

impl Headers {
    /// Takes over a buffer. `None` if it is not such a list.
    #[inline]
    pub fn read(buffer: Vec<u8>) -> Option<Self> {
        if buffer.is_empty() {
            return Some(Self(buffer));
        }
        let (count, rest) = buffer.split_first_chunk()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let (sizes, text) = rest.split_at_checked(count.checked_mul(size_of::<Sizes>())?)?;
        let (sizes, _) = sizes.as_chunks();
        // Sizes are of 32 bits and far fewer than 2^30, so their sum fits.
        let total = sizes.iter().fold(0_u64, |total, sizes| {
            let [name, value] = split(sizes);
            total.saturating_add(u64::from(name)).saturating_add(u64::from(value)).saturating_add(2)
        });
        (total <= u64::try_from(text.len()).ok()?).then_some(Self(buffer))
    }

    /// Every header, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (sizes, mut text) = self.parts();
        sizes.iter().map(move |sizes| {
            let [name, value] = split(sizes);
            let name = take(&mut text, name);
            (name, take(&mut text, value))
        })
    }

    /// The values of one header, in order. `name` is in lower case.
    #[inline]
    pub fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        // Most names differ in length already, which is cheap to see.
        self.iter()
            .filter(move |(other, _)| other.len() == name.len() && *other == name.as_bytes())
            .map(|(_, value)| value)
    }

    /// How many headers there are.
    pub(crate) fn len(&self) -> usize {
        self.parts().0.len()
    }

    #[inline]
    fn parts(&self) -> (&[Sizes], &[u8]) {
        let Some((count, rest)) = self.0.split_first_chunk() else { return (&[], &[]) };
        let count = usize::try_from(u32::from_le_bytes(*count)).unwrap_or(usize::MAX);
        let sizes = count.saturating_mul(size_of::<Sizes>());
        let (sizes, text) = rest.split_at_checked(sizes).unwrap_or_default();
        (sizes.as_chunks().0, text)
    }
}

/// Splits an entry into the two sizes. It runs for every header of every request, so both are read at once.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "it takes the halves of a number apart")]
fn split(sizes: &Sizes) -> [u32; 2] {
    let sizes = u64::from_le_bytes(*sizes);
    [sizes as u32, (sizes >> 32) as u32]
}

/// Takes the next piece off a text, without the NUL that follows it.
#[inline]
fn take<'a>(text: &mut &'a [u8], size: u32) -> &'a [u8] {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let (piece, rest) = text.split_at_checked(size).unwrap_or_default();
    *text = rest.get(1..).unwrap_or_default();
    piece
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Headers {
    /// Writes pairs in that format. A header that is too large for it is left out; no host has headers of 4 GiB.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let (mut count, mut sizes, mut text) = (0_u32, Vec::new(), Vec::new());
        for (name, value) in pairs {
            let (name, value) = (name.as_ref(), value.as_ref());
            let (Ok(name_size), Ok(value_size)) = (u32::try_from(name.len()), u32::try_from(value.len())) else {
                continue;
            };
            count = count.saturating_add(1);
            sizes.extend([name_size.to_le_bytes(), value_size.to_le_bytes()].as_flattened());
            for piece in [name, value] {
                text.extend_from_slice(piece);
                text.push(0);
            }
        }
        Self([&count.to_le_bytes()[..], &sizes, &text].concat())
    }
}

/// A fact about a stream that is not in its headers, read from the host one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Property {
    /// `request.protocol`.
    RequestProtocol,
    /// `source.address`: as Envoy writes it, an address with its port.
    SourceAddress,
    /// `source.port`, an integer.
    SourcePort,
    /// `destination.address`, like `source.address`.
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
    /// All URI SANs of the peer's certificate, joined by commas; the source's tags are among them. Envoy has no
    /// attribute for them, so the listener leaves them in the filter state.
    PeerUriSans,
}

impl Property {
    /// Every property.
    pub const ALL: [Self; 12] = [
        Self::RequestProtocol,
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

    /// Envoy's path for it.
    pub const fn path(self) -> [&'static str; 2] {
        match self {
            Self::RequestProtocol => ["request", "protocol"],
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

/// A set of inputs that a step needs before it can run, as bits. A host fetches only these, and nothing twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs(u32);

/// The bit of the first property. The bits below it are the inputs that are not properties.
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

    /// The claims of the caller's token. No host provides them: a step of the chain finds them out.
    pub(crate) const CLAIMS: Self = Self(1 << 6);
    /// The name of the route. No host provides it: every run has it.
    pub(crate) const ROUTE: Self = Self(1 << 7);
    /// The inputs that no host provides.
    pub(crate) const OWN: Self = Self::CLAIMS.union(Self::ROUTE);

    /// A property.
    pub const fn of(property: Property) -> Self {
        Self(1 << FIRST_PROPERTY << (property as u8))
    }

    /// This set if the condition holds, else the empty set.
    #[must_use]
    pub const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }

    /// Whether all of `these` are in the set.
    pub const fn has(self, these: Self) -> bool {
        these.without(self).is_empty()
    }

    /// The properties in the set.
    pub fn properties(self) -> impl Iterator<Item = Property> {
        Property::ALL.into_iter().filter(move |property| self.has(Self::of(*property)))
    }

    /// Whether there is a property in the set.
    pub const fn has_properties(self) -> bool {
        self.0 >> FIRST_PROPERTY != 0
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The inputs of this set that are not in `given`.
    #[must_use]
    pub const fn without(self, given: Self) -> Self {
        Self(self.0 & !given.0)
    }

    /// The inputs of this set that a host can provide only while it has the request.
    #[must_use]
    pub(crate) const fn of_request(self) -> Self {
        Self(self.0 & (Self::REQUEST_HEADERS.0 | Self::BODY.0 | Self::HAS_BODY.0))
    }

    /// Whether the set has something that depends on the route: its name, its cluster or its virtual host.
    pub(crate) const fn depend_on_route(self) -> bool {
        let dependent = Self::of(Property::ClusterName).union(Self::of(Property::VirtualHostName)).union(Self::ROUTE);
        self.0 & dependent.0 != 0
    }

    /// The inputs of this set that cost a host next to nothing, so that they are asked for together with others.
    #[must_use]
    pub(crate) const fn cheap(self) -> Self {
        Self(self.0 & (Self::NOW.0 | Self::HAS_BODY.0))
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The inputs that a host has provided.
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
    properties: Rare<Vec<(Property, Vec<u8>)>>,
}

impl Inputs {
    /// The inputs of a request without its properties. `now` is in nanoseconds since 1970.
    pub fn of_request(request_headers: Headers, body: Option<Vec<u8>>, now: u64) -> Self {
        Self { request_headers, has_body: body.is_some(), body: body.unwrap_or_default(), now, ..Self::default() }
    }

    /// Sets a property. A property that the host does not have is not set.
    pub fn set(&mut self, property: Property, value: Vec<u8>) {
        self.properties.make().push((property, value));
    }

    /// A property's bytes, as the host writes them.
    pub fn property(&self, property: Property) -> Option<&[u8]> {
        self.properties.get()?.iter().find(|(candidate, _)| *candidate == property).map(|(_, value)| value.as_slice())
    }

    /// Takes over the inputs in `given` from another. They must be missing here.
    pub(crate) fn absorb(&mut self, mut other: Self, given: Needs) {
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
        if let Some(properties) = other.properties.get_mut() {
            self.properties.make().append(properties);
        }
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
    fn reads_every_header_of_a_buffer_and_no_cut_of_it() {
        let pairs: [(&[u8], &[u8]); 3] = [(b"name", b"value"), (b"", b""), (b"\xff", b"\0")];
        let Headers(whole) = pairs.into_iter().collect();
        let headers = Headers::read(whole.clone()).unwrap();
        assert_eq!(headers.iter().collect::<Vec<_>>(), pairs);
        let read = (1..whole.len()).filter(|end| Headers::read(whole[..*end].to_vec()).is_some());
        assert_eq!(read.count(), 0);
    }

    #[test]
    fn reads_an_empty_buffer_as_no_headers() {
        assert_eq!(Headers::read(Vec::new()).unwrap().iter().count(), 0);
        assert_eq!(Headers::default().values("a").count(), 0);
    }

    #[test]
    fn refuses_a_count_and_sizes_that_overflow() {
        assert!(Headers::read(vec![0xff; 4]).is_none());
        assert!(Headers::read(vec![0xff; 64]).is_none());
        assert!(Headers::read([&1_u32.to_le_bytes()[..], &[0xff; 8]].concat()).is_none());
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
