//! A value that is usually absent. Then it costs one word and one comparison.

/// A boxed value that few messages need. Dropping it is a separate call, so that a value that contains an empty one is
/// dropped without any: calls are what costs on a request's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rare<T>(Option<Box<T>>);

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self::none()
    }
}

impl<T> Rare<T> {
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// The value. Created if absent.
    pub(crate) fn make(&mut self) -> &mut T
    where
        T: Default,
    {
        self.0.get_or_insert_default()
    }
}

impl<T> Drop for Rare<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(content) = self.0.take() {
            drop_content(content);
        }
    }
}

#[cold]
#[inline(never)]
fn drop_content<T>(content: Box<T>) {
    drop(content);
}
