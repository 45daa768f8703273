//! The signature algorithms that tokens may use (RFC 7518, section 3.1; RFC 8037, section 3.1).

use postern_proto::plan::v1::SignatureAlgorithm as Wire;

/// A signature algorithm. `none` is not one of them, so no token can ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Es256,
    Es384,
    EdDsa,
    Hs256,
}

impl Algorithm {
    /// The algorithm that a token's `alg` names, exactly as registered.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" => Self::EdDsa,
            "HS256" => Self::Hs256,
            _ => return None,
        })
    }

    pub(super) fn from_wire(number: i32) -> Option<Self> {
        Some(match Wire::try_from(number).ok()? {
            Wire::Unspecified => return None,
            Wire::Rs256 => Self::Rs256,
            Wire::Rs384 => Self::Rs384,
            Wire::Rs512 => Self::Rs512,
            Wire::Ps256 => Self::Ps256,
            Wire::Es256 => Self::Es256,
            Wire::Es384 => Self::Es384,
            Wire::Eddsa => Self::EdDsa,
            Wire::Hs256 => Self::Hs256,
        })
    }
}
