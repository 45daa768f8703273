//! Lowers `requestSize`.

use postern_model::unit;
use postern_proto::plan::v1::{RequestSize, step::Policy};
use serde::Deserialize;
use serde_json::Value as Json;

use super::{Lowering, policies::LowerError};

impl Lowering {
    pub(super) fn request_size(params: &RequestSizeParams) -> Result<Policy, LowerError> {
        let size = |value: &Option<Json>| match value {
            Some(Json::Number(bytes)) => bytes.as_u64(),
            Some(Json::String(text)) => unit::size(text).map(u64::from),
            _ => None,
        };
        let wire = RequestSize {
            body: size(&params.max_body),
            headers: params.max_headers,
            header_bytes: size(&params.max_header_bytes),
            path: size(&params.max_path),
            query: size(&params.max_query),
            require_length: params.require_content_length,
        };
        if wire == RequestSize::default() {
            return Err(LowerError::Value("expected at least one limit"));
        }
        Ok(Policy::RequestSize(wire))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestSizeParams {
    max_body: Option<Json>,
    max_headers: Option<u64>,
    max_header_bytes: Option<Json>,
    max_path: Option<Json>,
    max_query: Option<Json>,
    require_content_length: bool,
}
