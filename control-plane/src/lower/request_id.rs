//! `requestId`.

use postern_proto::plan::v1::{RequestId, step::Policy};
use serde::Deserialize;

use super::Lowering;

impl Lowering {
    pub(super) fn request_id(&mut self, params: &RequestIdParams) -> Policy {
        Policy::RequestId(RequestId {
            header: self.header_name(params.header.as_deref().unwrap_or("x-request-id")),
            trust_incoming: params.trust_incoming,
            sortable: params.format.as_deref() == Some("uuidv7"),
            echo: params.echo.unwrap_or(true),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestIdParams {
    header: Option<String>,
    #[serde(default)]
    trust_incoming: bool,
    format: Option<String>,
    echo: Option<bool>,
}
