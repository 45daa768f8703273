//! Lowers `requestSize`.

use postern_proto::plan::v1::{RequestSize, step::Policy};

use super::{Lowering, policies::LowerError};
use crate::params::{RequestSizeParams, Size};

impl Lowering {
    pub(super) fn request_size(params: &RequestSizeParams) -> Result<Policy, LowerError> {
        let bytes = |size: Option<Size>| size.map(|Size(bytes)| bytes);
        let wire = RequestSize {
            body: bytes(params.max_body),
            headers: params.max_headers,
            header_bytes: bytes(params.max_header_bytes),
            path: bytes(params.max_path),
            query: bytes(params.max_query),
            require_length: params.require_content_length,
        };
        if wire == RequestSize::default() {
            return Err(LowerError::Value("expected at least one limit"));
        }
        Ok(Policy::RequestSize(wire))
    }
}
