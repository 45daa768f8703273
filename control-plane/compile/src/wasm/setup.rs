//! The environment of a VM when it starts.

use std::{collections::BTreeSet, time::Duration};

use postern_engine::Placement;

use super::{Limits, LogLevel, Properties, SharedData};

/// The environment of a VM. By default, an Envoy at the start of 1970 that has every cluster.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The limits of the module.
    pub limits: Limits,
    /// The shared data. VMs with clones of one handle are workers of one Envoy.
    pub shared_data: SharedData,
    /// The initial time of the clock, since 1970; see [`Vm::set_time`](super::Vm::set_time).
    pub time: Duration,
    /// The log level that the module is told. Lines below it are kept too.
    pub log_level: LogLevel,
    /// Properties of every context, such as `node` and `plugin_name`.
    pub properties: Properties,
    /// The clusters for HTTP callouts.
    pub clusters: Clusters,
    /// How a pause in the headers' callback affects the rest of the message.
    pub headers_pause: HeadersPause,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            shared_data: SharedData::default(),
            time: Duration::ZERO,
            log_level: LogLevel::Info,
            // As in a listener of a Gateway.
            properties: Properties::new().with(&["plugin_root_id"], Placement::Gateway.name()),
            clusters: Clusters::Any,
            headers_pause: HeadersPause::HoldsBody,
        }
    }
}

/// The clusters that exist. A callout to another one fails as a bad argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clusters {
    /// Every name.
    Any,
    /// Only these.
    Only(BTreeSet<String>),
}

impl Clusters {
    pub(super) fn has(&self, name: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Only(names) => std::str::from_utf8(name).is_ok_and(|name| names.contains(name)),
        }
    }
}

/// The plugin's `allow_on_headers_stop_iteration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadersPause {
    /// Not set: body and trailers are delivered to the filter only once the stream is resumed.
    HoldsBody,
    /// Set: body and trailers are delivered meanwhile, so that the filter can wait for them.
    ShowsBody,
}
