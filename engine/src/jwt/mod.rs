//! JSON Web Tokens (RFC 7519) in their compact form: reading one strictly, checking what it says, checking its
//! signature, and remembering the ones that were good. [`crate::policy`] has the step that is made of this.
//!
//! Nothing in a token chooses how it is checked: it names an algorithm and a key, and the key decides whether they fit.
//! This is written by hand because Envoy checks signatures where it can; the primitives for the others are libraries'.

mod algorithm;
mod cache;
mod claims;
mod der;
mod fingerprint;
mod issuer;
mod key;
mod token;
mod verifier;

pub use self::{
    cache::{Entry, TokenCache, TokenKey, Verified},
    key::{Hash, SignatureCheck, SignedText},
};
pub(crate) use self::{
    claims::ClaimPath,
    issuer::Issuer,
    verifier::{Rules, Trouble, Verifier},
};
