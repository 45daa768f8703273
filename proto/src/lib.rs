//! The messages between the parts of Postern: generated code, and how a plan is carried ([`configuration`]). Their
//! meaning is defined by the crates that use them.

#![forbid(unsafe_code)]

pub mod configuration;

/// The plan that a filter loads.
pub mod plan {
    /// Version 1 of the package. The versions of the plan's format are [`OLDEST_FORMAT`] to [`FORMAT`].
    pub mod v1 {
        #![allow(missing_docs, unreachable_pub, reason = "generated; the .proto file is the documentation")]
        include!(concat!(env!("OUT_DIR"), "/postern.plan.v1.rs"));

        /// The newest value of `Plan.format` that these messages describe. The build of the filter with the feature
        /// `previous-format` is one that came before it.
        pub const FORMAT: u32 = if cfg!(feature = "previous-format") { 3 } else { 4 };

        /// The oldest value of `Plan.format` that is still loaded. Format 4 is format 3 with `Plan.matches`.
        pub const OLDEST_FORMAT: u32 = 3;

        impl Plan {
            /// The oldest format that has all that this plan says, so that every filter that can load it does.
            pub fn least_format(&self) -> u32 {
                if self.matches.is_empty() { OLDEST_FORMAT } else { 4 }
            }
        }
    }
}

/// The messages of an audit log to a collector.
#[cfg(feature = "audit")]
pub mod audit {
    /// Version 1.
    pub mod v1 {
        #![allow(missing_docs, unreachable_pub, reason = "generated; the .proto file is the documentation")]
        #![allow(clippy::allow_attributes_without_reason, reason = "generated")]
        include!(concat!(env!("OUT_DIR"), "/postern.audit.v1.rs"));
    }
}

/// The messages of policy discovery, for enforcement points that are not Envoys.
#[cfg(feature = "discovery")]
pub mod discovery {
    /// Version 1.
    pub mod v1 {
        #![allow(missing_docs, unreachable_pub, reason = "generated; the .proto file is the documentation")]
        #![allow(clippy::allow_attributes_without_reason, reason = "generated")]
        include!(concat!(env!("OUT_DIR"), "/postern.discovery.v1.rs"));
    }
}

/// Decodes a plan. The decoding is compiled in this crate and not where it is called, so that a filter can have it
/// optimized for size: it runs once for each plan.
pub fn decode_plan(bytes: &[u8]) -> Result<plan::v1::Plan, prost::DecodeError> {
    prost::Message::decode(bytes)
}
