//! The identity of a client: reads it from the first request, and checks that later requests do not change it.

use std::sync::Arc;

use postern_base::{
    bounded::{NAME, shown},
    node::{DEFAULT_MESH, MOST_TAGS, NodeIdentity},
};
use postern_proto::discovery::v1::{ClientIdentity, PolicyDiscoveryRequest};
use postern_release::publication::Audience;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// It has no address, so that its client cannot be identified.
    #[error("`client_address` is empty: it says which client asks")]
    NoAddress,
    /// A name exceeds the limit.
    #[error("`{0}` is longer than {NAME} bytes")]
    TooLong(String),
    /// There are more tags than the limit.
    #[error("`identity.tags` has {0} tags: at most {MOST_TAGS} are taken")]
    TooManyTags(usize),
    /// It asks for a plan, which has secrets, without an identity.
    #[error("`wants_plan` needs `identity`: a plan is made for a client that says who it is")]
    PlanForNobody,
    /// It has another identity than the first request: a stream belongs to one client.
    #[error("`{field}` was {was} at the beginning of the stream and cannot change")]
    Changed {
        /// The field that has changed.
        field: &'static str,
        /// Its value before.
        was: String,
    },
}

/// The client that the first request of a stream comes from.
pub(super) fn read(request: &PolicyDiscoveryRequest) -> Result<Audience, IdentityError> {
    let PolicyDiscoveryRequest { client_address, identity, wants_plan, .. } = request;
    check_address(client_address)?;
    match identity {
        None if *wants_plan => Err(IdentityError::PlanForNobody),
        None => Ok(Audience::Anyone),
        Some(identity) => {
            Ok(Audience::Identified { node: Arc::new(node(client_address, identity)?), plan: *wants_plan })
        }
    }
}

/// Checks that a later request comes from the same client.
pub(super) fn check(request: &PolicyDiscoveryRequest, address: &str, audience: &Audience) -> Result<(), IdentityError> {
    if !request.client_address.is_empty() && request.client_address != address {
        return Err(IdentityError::Changed { field: "client_address", was: format!("`{address}`") });
    }
    if let Some(identity) = &request.identity
        && audience.node().is_none_or(|known| node(address, identity).as_ref() != Ok(&**known))
    {
        return Err(IdentityError::Changed { field: "identity", was: "another".to_owned() });
    }
    if request.wants_plan && !audience.wants_plan() {
        return Err(IdentityError::Changed { field: "wants_plan", was: "not set".to_owned() });
    }
    Ok(())
}

pub(super) fn check_address(address: &str) -> Result<(), IdentityError> {
    if address.is_empty() { Err(IdentityError::NoAddress) } else { check_length("client_address", address) }
}

pub(super) fn check_length(field: &str, name: &str) -> Result<(), IdentityError> {
    if name.len() > NAME { Err(IdentityError::TooLong(field.to_owned())) } else { Ok(()) }
}

fn node(address: &str, identity: &ClientIdentity) -> Result<NodeIdentity, IdentityError> {
    let ClientIdentity { service, mesh, tags } = identity;
    check_length("identity.service", service)?;
    check_length("identity.mesh", mesh)?;
    if tags.len() > MOST_TAGS {
        return Err(IdentityError::TooManyTags(tags.len()));
    }
    for (name, value) in tags {
        if name.len() > NAME || value.len() > NAME {
            return Err(IdentityError::TooLong(format!("identity.tags.{}", shown(name))));
        }
    }
    Ok(NodeIdentity {
        id: address.to_owned(),
        service: service.clone(),
        mesh: if mesh.is_empty() { DEFAULT_MESH.to_owned() } else { mesh.clone() },
        tags: tags.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        ..NodeIdentity::default()
    })
}
