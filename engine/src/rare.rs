//! Something that is hardly ever there, at the cost of a word and one comparison where it is not.

/// What a few messages need, in a box of its own. To drop it is a call of its own too, so that what contains it is dropped
/// in place where there is none: on the way of a request, calls are what costs.
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

    /// It, made if need be.
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
