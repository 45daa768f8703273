//! An operation of the API: its route, its parameters and answers for the description, and its handler.

use std::sync::Arc;

use axum::{handler::Handler, routing};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::control_plane::ControlPlane;

/// A function that returns the schema of a type.
pub(super) type Describe = fn(&mut SchemaGenerator) -> Schema;

/// One route of the API.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// The `operationId`, for programs.
    pub(super) id: &'static str,
    /// A summary in one sentence, for people.
    pub(super) summary: &'static str,
    /// Its parameters in the path and in the query; each structure describes several.
    pub(super) parameters: Vec<(ParameterPlace, Describe)>,
    /// The headers that it reads, with their descriptions.
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) body: Option<Describe>,
    pub(super) answers: Vec<DescribedAnswer>,
    pub(super) handler: routing::MethodRouter<Arc<ControlPlane>>,
}

/// The location of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterPlace {
    Path,
    Query,
}

/// A possible answer.
pub(super) struct DescribedAnswer {
    pub(super) status: u16,
    pub(super) about: &'static str,
    /// The media types of its body, each with its schema if it has one.
    pub(super) content: Vec<(&'static str, Option<Describe>)>,
}

impl Operation {
    fn new(
        method: &'static str,
        path: &'static str,
        (id, summary): (&'static str, &'static str),
        handler: routing::MethodRouter<Arc<ControlPlane>>,
    ) -> Self {
        let (parameters, headers, answers) = Default::default();
        Self { method, path, id, summary, parameters, headers, body: None, answers, handler }
    }

    pub(super) fn get<H, T>(path: &'static str, name: (&'static str, &'static str), handler: H) -> Self
    where
        H: Handler<T, Arc<ControlPlane>>,
        T: 'static,
    {
        Self::new("get", path, name, routing::get(handler))
    }

    pub(super) fn post<H, T>(path: &'static str, name: (&'static str, &'static str), handler: H) -> Self
    where
        H: Handler<T, Arc<ControlPlane>>,
        T: 'static,
    {
        Self::new("post", path, name, routing::post(handler))
    }

    pub(super) fn delete<H, T>(path: &'static str, name: (&'static str, &'static str), handler: H) -> Self
    where
        H: Handler<T, Arc<ControlPlane>>,
        T: 'static,
    {
        Self::new("delete", path, name, routing::delete(handler))
    }

    /// Adds the parameters in the path.
    pub(super) fn path<T: JsonSchema>(mut self) -> Self {
        self.parameters.push((ParameterPlace::Path, T::json_schema));
        self
    }

    /// Adds the parameters in the query.
    pub(super) fn query<T: JsonSchema>(mut self) -> Self {
        self.parameters.push((ParameterPlace::Query, T::json_schema));
        self
    }

    pub(super) fn header(mut self, name: &'static str, about: &'static str) -> Self {
        self.headers.push((name, about));
        self
    }

    /// Sets the type of the JSON body that it takes.
    pub(super) fn takes<T: JsonSchema>(mut self) -> Self {
        self.body = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Adds an answer with JSON.
    pub(super) fn json<T: JsonSchema>(self, status: u16, about: &'static str) -> Self {
        self.answer(status, about, vec![("application/json", Some(SchemaGenerator::subschema_for::<T>))])
    }

    /// Adds the answer 200 with JSON, or with YAML on request.
    pub(super) fn shows<T: JsonSchema>(self, about: &'static str) -> Self {
        let describe: Describe = SchemaGenerator::subschema_for::<T>;
        self.answer(200, about, vec![("application/json", Some(describe)), ("application/yaml", Some(describe))])
    }

    /// Adds an answer that no schema describes.
    pub(super) fn text(self, content_type: &'static str, about: &'static str) -> Self {
        self.texts(&[content_type], about)
    }

    /// Like [`Self::text`], in several formats.
    pub(super) fn texts(self, content_types: &[&'static str], about: &'static str) -> Self {
        self.answer(200, about, content_types.iter().map(|content_type| (*content_type, None)).collect())
    }

    pub(super) fn empty(self, status: u16, about: &'static str) -> Self {
        self.answer(status, about, Vec::new())
    }

    /// Adds an answer with a problem document.
    pub(super) fn problem(self, status: u16, about: &'static str) -> Self {
        self.answer(status, about, vec![(super::problem::TYPE, Some(super::problem::schema))])
    }

    fn answer(mut self, status: u16, about: &'static str, content: Vec<(&'static str, Option<Describe>)>) -> Self {
        self.answers.push(DescribedAnswer { status, about, content });
        self
    }

    /// Sets the maximum size of its body.
    pub(super) fn up_to(self, size: usize) -> Self {
        let handler = self.handler.layer(axum::extract::DefaultBodyLimit::max(size));
        Self { handler, ..self }
    }
}
