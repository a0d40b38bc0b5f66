"""Three kernels, in PTX that the driver itself compiles.

`gate` blocks a stream until the host opens it, so that a test decides when the work
before an event ends. After a timeout it gives up, and sets the word after its flag.
"""

PTX = """
.version 6.0
.target sm_60
.address_size 64

.visible .entry gate(.param .u64 flag_at, .param .u64 limit_ns)
{
    .reg .pred %p;
    .reg .u32 %open;
    .reg .u64 %flag, %limit, %start, %now;
    ld.param.u64 %flag, [flag_at];
    ld.param.u64 %limit, [limit_ns];
    mov.u64 %start, %globaltimer;
wait:
    ld.volatile.u32 %open, [%flag];
    setp.ne.u32 %p, %open, 0;
    @%p bra done;
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %p, %now, %limit;
    @%p bra wait;
    mov.u32 %open, 1;
    st.volatile.u32 [%flag+4], %open;
done:
    ret;
}

.visible .entry copy(.param .u64 to_at, .param .u64 from_at, .param .u64 words)
{
    .reg .pred %p;
    .reg .u32 %word, %thread, %threads;
    .reg .u64 %to, %from, %count, %index, %step, %offset, %place;
    ld.param.u64 %to, [to_at];
    ld.param.u64 %from, [from_at];
    ld.param.u64 %count, [words];
    mov.u32 %thread, %tid.x;
    cvt.u64.u32 %index, %thread;
    mov.u32 %threads, %ntid.x;
    cvt.u64.u32 %step, %threads;
next:
    setp.ge.u64 %p, %index, %count;
    @%p bra done;
    shl.b64 %offset, %index, 2;
    add.u64 %place, %from, %offset;
    ld.volatile.u32 %word, [%place];
    add.u64 %place, %to, %offset;
    st.volatile.u32 [%place], %word;
    add.u64 %index, %index, %step;
    bra next;
done:
    ret;
}

.visible .entry fill(.param .u64 to_at, .param .u64 bits, .param .u64 words)
{
    .reg .pred %p;
    .reg .u32 %word, %thread, %threads;
    .reg .u64 %to, %value, %count, %index, %step, %offset, %place;
    ld.param.u64 %to, [to_at];
    ld.param.u64 %value, [bits];
    ld.param.u64 %count, [words];
    cvt.u32.u64 %word, %value;
    mov.u32 %thread, %tid.x;
    cvt.u64.u32 %index, %thread;
    mov.u32 %threads, %ntid.x;
    cvt.u64.u32 %step, %threads;
next:
    setp.ge.u64 %p, %index, %count;
    @%p bra done;
    shl.b64 %offset, %index, 2;
    add.u64 %place, %to, %offset;
    st.volatile.u32 [%place], %word;
    add.u64 %index, %index, %step;
    bra next;
done:
    ret;
}
"""
