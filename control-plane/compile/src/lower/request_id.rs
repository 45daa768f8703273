//! Lowers `requestId`.

use postern_proto::plan::v1::{RequestId, step::Policy};

use super::Lowering;
use crate::params::RequestIdParams;

impl Lowering {
    pub(super) fn request_id(&mut self, params: &RequestIdParams) -> Policy {
        Policy::RequestId(RequestId {
            header: self.header_name(&params.header),
            trust_incoming: params.trust_incoming,
            sortable: params.format == "uuidv7",
            echo: params.echo,
        })
    }
}
