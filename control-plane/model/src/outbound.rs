//! What kinds share that say how proxies call others: a list `to`, whose entries each have a destination and fields that
//! are merged.

use postern_engine::schema::Object;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::target_ref::{TargetRef, Targeted};

/// The `spec` of a kind with a list `to`.
pub trait Outbound: Targeted {
    /// The fields of an entry that are merged. An absent one changes nothing.
    type Conf: Default + Serialize + DeserializeOwned;

    /// The schema of [`Self::Conf`].
    const CONF: &'static Object;

    /// The paths of the fields of which Envoy has one for a whole route, whatever its services.
    const PER_ROUTE: &'static [&'static str];

    /// The entries, by priority.
    fn to(&self) -> &[To<Self::Conf>];

    /// Why merged fields do not fit each other, with the field to blame. `None` if they do.
    fn contradiction(_conf: &Self::Conf) -> Option<(&'static str, String)> {
        None
    }
}

/// What a resource says of some destinations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct To<C> {
    /// The destinations.
    pub target_ref: TargetRef,
    /// The fields that are merged.
    #[serde(flatten)]
    pub conf: C,
}
