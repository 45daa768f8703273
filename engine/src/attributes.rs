//! Attributes: the values that expressions read, taken from what the host provided and what earlier steps found out.

use std::{borrow::Cow, sync::Arc};

use crate::{
    budget::{Exhausted, steps},
    cel::{Attribute, AttributeError, Attributes, Expression, Key, Map, Timestamp, Value},
    context::Context,
    event::{Headers, Needs, Phase, Property},
    selector::{self, spiffe},
    text::{content_length, host::host, ip, split_path},
};

/// The cost of each entry of a map that is built for an expression.
const ENTRY: u64 = 100;
/// The cost of finding a header, in addition to looking at each.
const LOOKUP: u64 = 8;

impl From<Exhausted> for AttributeError {
    fn from(Exhausted: Exhausted) -> Self {
        Self::TooCostly
    }
}

/// What a host must provide before an expression can be evaluated.
pub(crate) fn needs(expression: &Expression) -> Needs {
    expression.attributes().iter().fold(Needs::NONE, |needs, attribute| needs.union(needs_of(*attribute)))
}

fn needs_of(attribute: Attribute) -> Needs {
    match attribute {
        Attribute::RequestMethod
        | Attribute::RequestPath
        | Attribute::RequestUrlPath
        | Attribute::RequestQuery
        | Attribute::RequestHost
        | Attribute::RequestScheme
        | Attribute::RequestHeaders
        | Attribute::RequestId => Needs::REQUEST_HEADERS,
        Attribute::ResponseCode | Attribute::ResponseHeaders => Needs::RESPONSE_HEADERS,
        Attribute::RequestTime => Needs::NOW,
        Attribute::RequestBody => Needs::BODY,
        Attribute::RequestSize => Needs::REQUEST_HEADERS.union(Needs::HAS_BODY),
        Attribute::JwtClaims => Needs::CLAIMS,
        Attribute::XdsRouteName => Needs::ROUTE,
        other => property_of(other).map_or(Needs::NONE, Needs::of),
    }
}

fn property_of(attribute: Attribute) -> Option<Property> {
    Some(match attribute {
        Attribute::RequestProtocol => Property::RequestProtocol,
        Attribute::SourceAddress => Property::SourceAddress,
        Attribute::SourcePort => Property::SourcePort,
        Attribute::SourceService | Attribute::SourcePrincipal | Attribute::ConnectionUriSanPeerCertificate => {
            Property::PeerUriSan
        }
        Attribute::DestinationAddress => Property::DestinationAddress,
        Attribute::DestinationPort => Property::DestinationPort,
        Attribute::ConnectionMtls => Property::Mtls,
        Attribute::ConnectionRequestedServerName => Property::RequestedServerName,
        Attribute::ConnectionTlsVersion => Property::TlsVersion,
        Attribute::XdsClusterName => Property::ClusterName,
        Attribute::XdsVirtualHostName => Property::VirtualHostName,
        Attribute::SourceTags => Property::PeerUriSans,
        _ => return None,
    })
}

impl Attributes for Context<'_> {
    fn attribute(&self, attribute: Attribute) -> Result<Value, AttributeError> {
        match attribute {
            Attribute::RequestSize => self.request_size(),
            Attribute::RequestMethod => self.pseudo_header(":method"),
            Attribute::RequestPath => self.pseudo_header(":path"),
            Attribute::RequestUrlPath => text(split_path(self.path()?).0),
            Attribute::RequestQuery => text(split_path(self.path()?).1.unwrap_or_default()),
            Attribute::RequestHost => self.host(),
            Attribute::RequestScheme => self.pseudo_header(":scheme"),
            Attribute::RequestId => self.request_id(),
            Attribute::RequestHeaders => self.header_map(Phase::Request, &self.inputs.request_headers),
            Attribute::ResponseHeaders => self.header_map(Phase::Response, &self.inputs.response_headers),
            Attribute::RequestTime => timestamp(self.inputs.now).ok_or(AttributeError::Unavailable),
            Attribute::RequestBody => {
                self.budget.read(self.inputs.body.len())?;
                Ok(Value::Bytes(self.inputs.body.as_slice().into()))
            }
            Attribute::ResponseCode => self.response_code(),
            Attribute::XdsRouteName => Ok(Value::String(Arc::clone(self.route))),
            Attribute::ConsumerName => self.consumer().map(|consumer| Value::String(Arc::clone(&consumer.name))),
            Attribute::ConsumerGroups => {
                self.budget.spend(steps(self.consumer()?.groups.len()))?;
                let groups = |groups: &[Arc<str>]| groups.iter().cloned().map(Value::String).collect();
                self.consumer().map(|consumer| Value::List(groups(&consumer.groups)))
            }
            Attribute::Metadata => {
                self.budget.spend(steps(self.facts.metadata().count()).saturating_mul(ENTRY))?;
                Ok(map(self.facts.metadata()))
            }
            Attribute::JwtClaims => Ok(Value::Map(self.facts.claims.clone().unwrap_or_default())),
            Attribute::SourceTags => {
                self.spend_on_tags()?;
                let tags = selector::tags(self.inputs);
                let entry = |(name, value): (Cow<'_, str>, Cow<'_, str>)| {
                    (Key::String((&*name).into()), Value::String((&*value).into()))
                };
                Ok(Value::Map(Arc::new(tags.map(entry).collect())))
            }
            Attribute::SourceService => self.principal().and_then(|principal| {
                let (_, service) = spiffe(principal).ok_or(AttributeError::Absent)?;
                text(service.as_bytes())
            }),
            other => self.property(other),
        }
    }

    fn member(&self, attribute: Attribute, key: &str) -> Result<Option<Value>, AttributeError> {
        match attribute {
            Attribute::RequestHeaders => self.header(Phase::Request, &self.inputs.request_headers, key),
            Attribute::ResponseHeaders => self.header(Phase::Response, &self.inputs.response_headers, key),
            Attribute::Metadata => Ok(self.facts.metadatum(key).cloned().map(Value::String)),
            Attribute::JwtClaims => {
                Ok(self.facts.claims.as_ref().and_then(|claims| claims.get(&Key::from(key))).cloned())
            }
            Attribute::SourceTags => {
                self.spend_on_tags()?;
                let mut tags = selector::tags(self.inputs);
                Ok(tags.find(|(name, _)| name == key).map(|(_, value)| Value::String((&*value).into())))
            }
            _ => Err(AttributeError::Unavailable),
        }
    }
}

impl Context<'_> {
    /// The source's identity, as its certificate says.
    pub(crate) fn principal(&self) -> Result<&str, AttributeError> {
        let bytes = self.inputs.property(Property::PeerUriSan).filter(|bytes| !bytes.is_empty());
        str::from_utf8(bytes.ok_or(AttributeError::Absent)?).map_err(|_| AttributeError::NotUtf8)
    }

    /// Charges for reading the names in the peer's certificate.
    fn spend_on_tags(&self) -> Result<(), AttributeError> {
        let names = self.inputs.property(Property::PeerUriSans).map_or(0, <[u8]>::len);
        Ok(self.budget.spend(steps(names).saturating_mul(2))?)
    }

    fn path(&self) -> Result<&[u8], AttributeError> {
        self.inputs.request_headers.values(":path").next().ok_or(AttributeError::Absent)
    }

    /// The host by which Envoy chose the route. Not available for an authority that could be read as several hosts.
    #[inline(never)]
    fn host(&self) -> Result<Value, AttributeError> {
        let authority = self.inputs.request_headers.values(":authority").next().ok_or(AttributeError::Absent)?;
        host(authority).map(|host| Value::String(host.into())).ok_or(AttributeError::Unavailable)
    }

    fn pseudo_header(&self, name: &str) -> Result<Value, AttributeError> {
        self.header(Phase::Request, &self.inputs.request_headers, name)?.ok_or(AttributeError::Absent)
    }

    /// The id that Envoy has set, even if a step is going to replace it.
    fn request_id(&self) -> Result<Value, AttributeError> {
        let edits = if self.phase == Phase::Request { &*self.edits } else { self.request_edits };
        text(edits.sent(&self.inputs.request_headers, "x-request-id").first().ok_or(AttributeError::Absent)?)
    }

    /// The body's size from `content-length`, or from the body if all of it has been read. What has come so far is not
    /// a size.
    fn request_size(&self) -> Result<Value, AttributeError> {
        self.budget.spend(cost_of_lookup(&self.inputs.request_headers))?;
        let size = match self.inputs.request_headers.values("content-length").next() {
            Some(length) => content_length(length).and_then(|length| i64::try_from(length).ok()),
            None if !self.inputs.body.is_empty() => i64::try_from(self.inputs.body.len()).ok(),
            None => (!self.inputs.has_body).then_some(0),
        };
        size.map(Value::Int).ok_or(AttributeError::Unavailable)
    }

    fn response_code(&self) -> Result<Value, AttributeError> {
        let status = self.inputs.response_headers.values(":status").next().ok_or(AttributeError::Absent)?;
        let status = str::from_utf8(status).map_err(|_| AttributeError::NotUtf8)?;
        status.parse().map(Value::Int).map_err(|_| AttributeError::Unavailable)
    }

    /// The value of one header after the edits of earlier steps; several values are joined by commas.
    fn header(&self, phase: Phase, came: &Headers, name: &str) -> Result<Option<Value>, AttributeError> {
        self.budget.spend(cost_of_lookup(came))?;
        let edits = if phase == self.phase { &*self.edits } else { self.request_edits };
        match edits.values(came, name).as_slice() {
            [] => Ok(None),
            [value] => text(value).map(Some),
            several => text(&several.join(&b","[..])).map(Some),
        }
    }

    /// All headers as a map, for expressions that look at them as a whole.
    fn header_map(&self, phase: Phase, came: &Headers) -> Result<Value, AttributeError> {
        let edits = if phase == self.phase { &*self.edits } else { self.request_edits };
        let edited = edits.headers().map(|edit| edit.name.as_bytes());
        let mut found = Map::default();
        for name in came.iter().map(|(name, _)| name).chain(edited) {
            self.budget.spend(ENTRY)?;
            let name = str::from_utf8(name).map_err(|_| AttributeError::NotUtf8)?;
            if let Some(value) = self.header(phase, came, name)? {
                // A repeated header is there already, with all its values.
                let _ = found.insert(Key::String(name.into()), value);
            }
        }
        Ok(Value::Map(found.into()))
    }

    /// A property, as proxy-wasm writes it: integers in eight bytes, truth values in one, the rest as text.
    fn property(&self, attribute: Attribute) -> Result<Value, AttributeError> {
        let property = property_of(attribute).ok_or(AttributeError::Absent)?;
        let bytes = self.inputs.property(property).ok_or(AttributeError::Absent)?;
        match property {
            Property::SourcePort | Property::DestinationPort => {
                let bytes = bytes.try_into().map_err(|_| AttributeError::Unavailable)?;
                Ok(Value::Int(i64::from_le_bytes(bytes)))
            }
            Property::Mtls => Ok(Value::Bool(bytes.first() == Some(&1))),
            // Envoy writes them with their ports. The peer of a Unix socket has no address.
            Property::SourceAddress | Property::DestinationAddress => {
                let address = ip::address(bytes).ok_or(AttributeError::Absent)?;
                Ok(Value::String(address.to_string().into()))
            }
            _ => text(bytes),
        }
    }
}

/// The cost of finding a header: all of them are looked at.
fn cost_of_lookup(headers: &Headers) -> u64 {
    steps(headers.len()).div_ceil(4).saturating_add(LOOKUP)
}

fn map<'a>(entries: impl IntoIterator<Item = (&'a Arc<str>, &'a Arc<str>)>) -> Value {
    let entry = |(key, value): (&Arc<str>, &Arc<str>)| (Key::String(Arc::clone(key)), Value::String(Arc::clone(value)));
    Value::Map(Arc::new(entries.into_iter().map(entry).collect()))
}

/// The time for this number of nanoseconds since 1970. `None` if it is out of range.
fn timestamp(nanoseconds: u64) -> Option<Value> {
    let second = 1_000_000_000;
    let (seconds, rest) = (nanoseconds.checked_div(second)?, nanoseconds.checked_rem(second)?);
    Timestamp::new(i64::try_from(seconds).ok()?, u32::try_from(rest).ok()?).map(Value::Timestamp)
}

fn text(bytes: &[u8]) -> Result<Value, AttributeError> {
    str::from_utf8(bytes).map(|text| Value::String(text.into())).map_err(|_| AttributeError::NotUtf8)
}
