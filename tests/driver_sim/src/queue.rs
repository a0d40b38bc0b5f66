//! Queues of limited length: a call that finds one full waits until the device has done the oldest work in it.
//!
//! No documentation says how much a queue holds. That launches block when one is full is NVIDIA's answer in
//! numba-cuda#321, and what LMCache#2952 and TensorRT-LLM#15855 met.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use crate::abi::Handle;
use crate::clock::Moment;
use crate::code::Answer;
use crate::sim::Sim;

/// Work that is not done, the oldest first, and how much of it there may be.
pub(crate) struct Queue {
    bound: usize,
    work: VecDeque<Moment>,
}

impl Sim {
    /// Limits the queue of a resolved stream; 0 is no limit.
    pub(crate) fn bound_queue(&mut self, stream: Handle, bound: usize) -> Answer {
        let work = VecDeque::new();
        self.stream_mut(stream)?.queue = (bound != 0).then_some(Queue { bound, work });
        Ok(())
    }

    /// Waits until the queue of a resolved stream has room.
    pub(crate) fn make_room(&mut self, stream: Handle) -> Answer {
        let Some(queue) = &self.stream(stream)?.queue else {
            return Ok(());
        };
        let pending = |moment: &&Moment| !moment.before(&self.completed);
        let work: VecDeque<Moment> = queue.work.iter().filter(pending).cloned().collect();
        let oldest = work.front().filter(|_| work.len() >= queue.bound).cloned();
        if let Some(queue) = &mut self.stream_mut(stream)?.queue {
            queue.work = work;
        }
        let Some(oldest) = oldest else {
            return Ok(());
        };
        // The device works by itself, up to a host function.
        self.complete(&oldest.clock)
    }

    /// Enters work in the queue of a resolved stream.
    pub(crate) fn note_queued(&mut self, stream: Handle, moment: &Moment) -> Answer {
        if let Some(queue) = &mut self.stream_mut(stream)?.queue {
            queue.work.push_back(moment.clone());
        }
        Ok(())
    }
}
