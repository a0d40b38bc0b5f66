//! What a snapshot takes from others: foreign managed tensors.

use std::mem::replace;
use std::sync::Arc;

use super::{Snapshot, Source};
use crate::abi::*;
use crate::checked::{Checked, Memo, dimensions};
use crate::error::Error;
use crate::managed::{Managed, ManagedTensor};
use crate::work::Work;

impl Snapshot {
    /// Takes over a foreign tensor, or gives it back untouched with the reason.
    ///
    /// `work` says what the elements wait for.
    pub(crate) fn import<M>(
        managed: Managed<M>,
        work: Option<Work>,
    ) -> Result<Self, (Error, Managed<M>)>
    where
        M: ManagedTensor,
        Source: From<Managed<M>>,
    {
        let (tensor, flags) = match managed.read() {
            Ok(read) => read,
            Err(error) => return Err((error, managed)),
        };
        // SAFETY: `managed` owns the tensor, so its dimensions are valid (R100); they stay so while this
        // function runs, because `managed` goes either into the snapshot or back to the caller (S3).
        let dimensions = unsafe { dimensions(tensor) };
        let checked = dimensions
            .and_then(|(shape, strides)| Checked::new(Memo::of(tensor, flags)?, shape, strides));
        match checked {
            Ok(checked) => Ok(checked.with_work(managed.into(), work.map(Arc::new))),
            Err(error) => Err((error, managed)),
        }
    }

    /// Takes over a tensor that looks as usual, from a library whose tensors need no checking then; gives back others.
    #[inline(always)]
    pub(crate) fn import_trusted(
        managed: Managed<DLManagedTensorVersioned>,
    ) -> Result<Self, Managed<DLManagedTensorVersioned>> {
        let Some((tensor, memo)) = Memo::of_trusted(&managed) else {
            return Err(managed);
        };
        // SAFETY: as in `import`.
        let Ok((shape, Some(strides))) = (unsafe { dimensions(tensor) }) else {
            return Err(managed);
        };
        let stride = |index: usize| strides[index];
        Ok(Self::trusted(memo, managed.into(), shape, stride))
    }

    /// Leaves the versioned tensor that this was imported from as it is, if nobody else holds the snapshot.
    pub(crate) fn forget(mut self) -> Result<(), Self> {
        let fields = self.0.get_mut();
        let forgotten = match fields.map(|fields| replace(&mut fields.source, Source::Static)) {
            Some(Source::Versioned(managed)) => {
                managed.into_raw();
                true
            }
            Some(_) => true,
            None => false,
        };
        match forgotten {
            true => Ok(()),
            false => Err(self),
        }
    }
}
