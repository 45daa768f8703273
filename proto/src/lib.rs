//! The messages that Postern's parts speak among themselves. Generated code only: meaning belongs to the users.

#![forbid(unsafe_code)]

/// The plan that a filter loads.
pub mod plan {
    /// Format 1.
    pub mod v1 {
        #![allow(missing_docs, unreachable_pub, reason = "generated; the .proto file is the documentation")]
        include!(concat!(env!("OUT_DIR"), "/postern.plan.v1.rs"));

        /// The one value of `Plan.format` that these messages describe.
        pub const FORMAT: u32 = 3;
    }
}

/// What an audit log tells a collector.
#[cfg(feature = "audit")]
pub mod audit {
    /// Version 1.
    pub mod v1 {
        #![allow(missing_docs, unreachable_pub, reason = "generated; the .proto file is the documentation")]
        #![allow(clippy::allow_attributes_without_reason, reason = "generated")]
        include!(concat!(env!("OUT_DIR"), "/postern.audit.v1.rs"));
    }
}

/// How enforcement points that are not Envoys are told of policies.
#[cfg(feature = "discovery")]
pub mod discovery {
    /// Version 1.
    pub mod v1 {
        #![allow(missing_docs, unreachable_pub, reason = "generated; the .proto file is the documentation")]
        #![allow(clippy::allow_attributes_without_reason, reason = "generated")]
        include!(concat!(env!("OUT_DIR"), "/postern.discovery.v1.rs"));
    }
}

/// Reads a plan. All that reading takes is compiled here and not where it is called, so that a filter can have it small:
/// it runs once for each plan.
pub fn decode_plan(bytes: &[u8]) -> Result<plan::v1::Plan, prost::DecodeError> {
    prost::Message::decode(bytes)
}
