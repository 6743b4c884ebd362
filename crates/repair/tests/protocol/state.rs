//! The state of the modelled machine: one process, its tracer, and those who disturb them.
//!
//! Everything that a transition depends on is a field here, so that two equal states have equal
//! futures. All fields are small, because millions of states are compared.

/// Index of the agent among the threads; 0 and 1 are threads of the program.
pub const AGENT: usize = 2;
/// Threads of the program.
pub const PROGRAM: [usize; 2] = [0, 1];
/// Maximum number of pages of a piece.
pub const MOST_PAGES: usize = 3;

/// What a configuration fixes about the machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Number of pages of the piece; each is a part of its own.
    pub pages: u8,
    /// What the first thread of the program does.
    pub work: Work,
    /// True if the first thread uses Syscall User Dispatch.
    pub dispatch: bool,
    /// True after `mlockall(MCL_FUTURE)`.
    pub locks_future: bool,
    /// True if the program has changed a part since the plan, so that the kernel joins nothing.
    pub differs: bool,
    /// True if the kernel may refuse the first `clone`.
    pub refuses_clone: bool,
    /// True if windows that are known to remain are passed over.
    pub excuses: bool,
    /// What the bully may do, each once: a set of [`Act`]s.
    pub acts: u16,
    /// Maximum number of things that the bully does.
    pub most_acts: u32,
}

/// An action from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Act {
    Stop = 1,
    Cont = 2,
    Ordinary = 4,
    Read = 8,
    Write = 16,
    KillVmarea = 32,
    KillTracer = 64,
}

/// A signal at a signal-delivery stop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Signal {
    Stop,
    /// A stop signal that has no effect any more, because `SIGCONT` came after it was dequeued.
    VoidStop,
    Cont,
    Ordinary,
}

/// What the registers of a thread say about its work in the program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Work {
    /// Nothing that a stop could disturb.
    Plain,
    /// In a restartable sequence.
    Sequence,
    /// The sequence was aborted: the thread continues at its abort handler.
    Aborted,
    /// Blocked in `pause()`: only a handler ends it.
    Pause,
    /// Blocked in a call that is repeated if no handler ran, or one with `SA_RESTART`; this program's
    /// handler has no `SA_RESTART`.
    Read,
    /// At a stop: the result is one with which the kernel repeats the call, or fails it with `EINTR`.
    PauseInterrupted,
    ReadInterrupted,
    /// The instruction pointer was set before the call, which will be made anew.
    PauseByHand,
    ReadByHand,
    /// The call has failed with `EINTR`.
    Eintr,
}

/// Where a thread's instruction pointer is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum At {
    Program,
    CallStub(Point),
    ParkStub(Point),
    /// The agent's instruction with this index.
    Agent(u8),
    /// At a system-call instruction of the program, with registers that are not the program's.
    Raw,
    /// Behind that instruction.
    AfterRaw,
}

/// Place in a stub.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Point {
    Start,
    /// All signals are blocked by the stub.
    Blocked,
    /// The call is made, or the wait is over.
    Done,
    /// The own mask is set.
    Unmasked,
    /// The own Syscall User Dispatch is set.
    Leaving,
}

/// Whether a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Run {
    Runs,
    /// At a trap stop or in group-stop, held by the tracer.
    Trapped,
    /// Stopped before a signal is delivered.
    AtSignal(Signal),
    /// Stopped at a system call, or after a `clone`.
    AtCall,
    /// Waits for a page that is out.
    Faults(u8),
    Ended,
}

/// A thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Thread {
    pub run: Run,
    pub at: At,
    pub work: Work,
    /// All signals are blocked; otherwise, the program's own mask is set.
    pub masked: bool,
    pub traced: bool,
    /// A trap stop is requested.
    pub interrupt: bool,
    /// The thread has taken part in the current group-stop; a tracer may let it run nevertheless.
    pub joined: bool,
    /// Syscall User Dispatch is on.
    pub dispatch: bool,
    /// A handler runs, or its frame is on the stack.
    pub handler: bool,
    /// The kernel has forgotten the restartable sequence, because the thread ran elsewhere.
    pub forgot: bool,
    /// The program has executed instructions since the tracer has saved the registers.
    pub advanced: bool,
    /// The kernel believes that a call was interrupted, though the registers lead to a stub.
    pub kept_call: bool,
}

/// Where the contents of a page are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    Home,
    /// In the temporary range; nothing is at home.
    Out,
    /// In the temporary range; somebody has caused a page of zeros at home.
    Covered,
}

/// A page of the piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Page {
    pub place: Place,
    /// The contents include the write of another process.
    pub written: bool,
}

/// The mapping that will replace the piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fresh {
    None,
    Unwatched,
    Watched,
    /// It is several mappings.
    Unjoined,
    /// The kernel has unmapped the piece for it, and then refused to move it there.
    Refused,
}

/// An access of another process that waits for a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Foreign {
    None,
    Reads(u8),
    Writes(u8),
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// A page was read as zeros.
    ReadAsZeros,
    /// A write that was acknowledged is gone.
    WriteLost,
    /// A page was lost because the program moved its empty mapping.
    MovedAway,
    /// A child of the program reads zeros.
    ForkedZeros,
    /// Code of the program ran with registers that are not its own.
    ForeignRegisters,
    /// Code of the program ran with a mask that is not its own.
    ForeignMask,
    /// The registers of a thread were set to what they were before it went on.
    WentBack,
    /// The kernel repeated a call in a stub.
    RestartInStub,
    /// A stub's call was dispatched to the program.
    Dispatched,
    /// The program runs without its Syscall User Dispatch.
    DispatchLost,
    /// A restartable sequence went on although the thread ran elsewhere.
    NotAborted,
    /// A thread went on in memory that is unmapped or overwritten.
    StubGone,
    /// At the end: a stop signal had no effect.
    StopLost,
    /// At the end: the process is stopped, though nobody else stopped it.
    StuckStopped,
    /// At the end: a page is not at home.
    PageOut,
    /// At the end: a thread is in a stub, waits for a page, or is held at a stop.
    NotBack,
    /// At the end: a handler did not run, or not to its end.
    SignalLost,
    /// A handler ran twice.
    HandlerTwice,
    /// At the end: a handler ran, but the call that it ends still waits.
    WakeUpLost,
    /// A call failed with `EINTR` without a handler.
    SpuriousEintr,
    /// At the end: another process waits for a page for ever.
    ForeignStuck,
    /// No end is in reach: something goes on for ever.
    NoEnd,
}

/// The tracer: the process that executes the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tracer {
    pub alive: bool,
    /// Index of its next step.
    pub step: u8,
    /// It has been told of a signal-delivery stop of this thread.
    pub told: Option<u8>,
    /// It has seen a pending stop signal.
    pub saw_stop: bool,
}

/// The state of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub threads: [Thread; 3],
    pub pages: [Page; MOST_PAGES],
    /// The mapping at home is watched.
    pub watched: bool,
    pub fresh: Fresh,
    /// Pages that `MCL_FUTURE` has put into the fresh mapping, and then into what is at home.
    pub populated: bool,
    /// The process is in group-stop.
    pub group_stop: bool,
    /// A stop signal is pending for the process, or for the first thread.
    pub stop_shared: bool,
    pub stop_private: bool,
    /// `SIGCONT` is pending; only a tracer sees it.
    pub cont: bool,
    /// An ordinary signal is pending for the first thread.
    pub ordinary: bool,
    /// How many handlers came to their end.
    pub handled: u8,
    /// Somebody else stopped the process last, and nobody else continued it since.
    pub must_stop: bool,
    pub foreign: Foreign,
    /// A page to which another process has written.
    pub acknowledged: Option<u8>,
    pub tracer: Tracer,
    pub vmarea: bool,
    /// What the bully has done: a set of [`Act`]s.
    pub acted: u16,
    /// The agent may begin.
    pub go: bool,
    /// Parked threads may go.
    pub free: bool,
    /// The kernel has refused a `clone`.
    pub refused: bool,
    /// The agent's memory and the stubs were removed by a second vmarea.
    pub swept: bool,
    pub fault: Option<Fault>,
}

impl Thread {
    /// A thread that runs the program.
    fn of(work: Work, dispatch: bool) -> Thread {
        Thread {
            run: Run::Runs,
            at: At::Program,
            work,
            masked: false,
            traced: false,
            interrupt: false,
            joined: false,
            dispatch,
            handler: false,
            forgot: false,
            advanced: false,
            kept_call: false,
        }
    }

    /// True if a tracer sees the thread stopped for a stop signal.
    pub fn is_at_stop_signal(&self) -> bool {
        matches!(self.run, Run::AtSignal(Signal::Stop | Signal::VoidStop))
    }

    /// True while the thread is in a stop that its tracer can end.
    pub fn is_held(&self) -> bool {
        matches!(self.run, Run::Trapped | Run::AtSignal(_) | Run::AtCall)
    }
}

impl State {
    /// The machine before the protocol begins.
    pub fn new(machine: &Machine) -> State {
        let page = Page {
            place: Place::Home,
            written: false,
        };
        let mut agent = Thread::of(Work::Plain, false);
        agent.run = Run::Ended;
        State {
            threads: [
                Thread::of(machine.work, machine.dispatch),
                Thread::of(Work::Plain, false),
                agent,
            ],
            pages: [page; MOST_PAGES],
            watched: false,
            fresh: Fresh::None,
            populated: false,
            group_stop: false,
            stop_shared: false,
            stop_private: false,
            cont: false,
            ordinary: false,
            handled: 0,
            must_stop: false,
            foreign: Foreign::None,
            acknowledged: None,
            tracer: Tracer {
                alive: true,
                step: 0,
                told: None,
                saw_stop: false,
            },
            vmarea: true,
            acted: 0,
            go: false,
            free: false,
            refused: false,
            swept: false,
            fault: None,
        }
    }

    /// True if the contents of all pages are at home.
    pub fn is_whole(&self) -> bool {
        self.pages.iter().all(|page| page.place == Place::Home)
    }

    /// True if the bully has done this.
    pub fn has_acted(&self, act: Act) -> bool {
        self.acted & act as u16 != 0
    }

    /// Notes a fault, unless there was one before.
    pub fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }
}
