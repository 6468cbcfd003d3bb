"""gdb commands and printers for programs that run on masu, live or from a core file.

    gdb -p PID -ex 'source tools/gdb/masu_gdb.py' -ex 'masu heaps'
    gdb PROGRAM CORE -ex 'source tools/gdb/masu_gdb.py' -ex 'masu address 0x7f12a4c00040'

    masu heaps [TAG]      every heap, or one: who has it, and what it holds by class
    masu address ADDRESS  what lies there: slab, heap, block, and whether it is free
    masu supply           regions, huge pages slice by slice, figures
    print *SLAB           slabs and heaps are printed with the mail word decoded
    print $masu_mail(W)   a mail word decoded

Needs the debugging symbols of libmasu (-g, as the release build has them). Nothing in
the program is called or changed. Values that other threads were about to change when
the program stopped are shown as they were found; a loop in a broken list is cut.
"""
import mmap
import struct

import gdb
import gdb.printing
import gdb.types

# From src/pages/slice.h, pagemap.h and src/heap/mail.c, front.h and slab.h, where they are macros or nameless.
SLICE_SHIFT = 16
SLICE_SIZE = 1 << SLICE_SHIFT
HUGE_SLICES = 32
FRONT_DUE = 1 << 15
STAND_IN_BIT = 64
LEAF_SHIFT = 32
ADDRESS_BITS = 47
MAIL_STATES = ["OPEN", "PARKED", "QUEUED", "DEAD"]
KINDS = ["unused", "small", "run", "direct", "nested"]

LONGEST_CHAIN = 1 << 20


# ---- Reading the program -------------------------------------------------------------


def variable(name, file):
    """A variable of masu, which is a static of masu.c where that is the one unit."""
    for unit in ("masu.c", file):
        try:
            return gdb.parse_and_eval(f"'{unit}'::{name}")
        except gdb.error:
            continue
    raise gdb.GdbError("no symbols of masu here: does the program run on a masu built with -g?")


def evaluate(expression):
    try:
        return gdb.parse_and_eval(expression)
    except gdb.error as error:
        raise gdb.GdbError(str(error)) from error


def word(address):
    """The 64-bit word at an address."""
    try:
        memory = gdb.selected_inferior().read_memory(address, 8)
    except gdb.MemoryError as error:
        raise gdb.GdbError(f"cannot read memory at {address:#x}") from error
    return struct.unpack("<Q", bytes(memory))[0]


def address_of(pointer):
    """A pointer, atomic or not, as a number."""
    return int(pointer.cast(gdb.lookup_type("unsigned long")))


def follow(first, link):
    """The values of a list: first is a pointer, link the name of the next one."""
    seen = set()
    while address_of(first) and address_of(first) not in seen:
        seen.add(address_of(first))
        yield first.dereference()
        first = first.dereference()[link]


def chain(head):
    """The addresses of the blocks on a list that runs through the blocks."""
    seen = set()
    while head and head not in seen and len(seen) < LONGEST_CHAIN:
        seen.add(head)
        yield head
        head = word(head)


def array(value):
    low, high = value.type.range()
    return [value[i] for i in range(low, high + 1)]


def typed(address, type_):
    return gdb.Value(address).cast(type_.unqualified().pointer()).dereference()


# ---- What masu's words mean ----------------------------------------------------------


class Mail:
    """version : 31 | count : 14 | head : 17 | state : 2, see src/heap/mail.h."""

    def __init__(self, value, start=None):
        self.state = MAIL_STATES[value & 3]
        code = value >> 2 & 0x1FFFF
        self.count = value >> 19 & 0x3FFF
        self.version = value >> 33
        self.offset = (code - 1) * 8 if code else 0
        self.head = start + self.offset if start is not None and code else 0

    def __str__(self):
        mail = f"{self.count} in the mail from +{self.offset:#x}" if self.count else "no mail"
        return f"{self.state}, {mail}, version {self.version}"


class Slab:
    """A descriptor, src/heap/slab.h."""

    def __init__(self, value):
        self.value = value
        self.address = address_of(value.address)
        self.kind = KINDS[int(value["kind"])]
        self.start = address_of(value["start"])
        self.slices = int(value["slices"])
        self.block_size = int(value["block_size"])
        self.capacity = int(value["capacity"])
        self.threaded = int(value["threaded"])
        self.need = int(value["need"])
        self.reserve = int(value["reserve"])
        self.purged = int(value["purged"])
        self.owner = address_of(value["owner"])
        self.mail = Mail(int(value["mail"]), self.start)

    def holds(self, address):
        return self.start <= address < self.start + self.slices * SLICE_SIZE

    def free_blocks(self):
        """The owner's list, which went with the run of a dead slab."""
        if self.mail.state == "DEAD":
            return iter(())
        return chain(address_of(self.value["free"]))

    def is_purged(self, block):
        """As sparse.c cuts a slab into units."""
        unit = mmap.PAGESIZE
        while unit * 64 < self.slices * SLICE_SIZE:
            unit *= 2
        return self.purged >> (block - self.start) // unit & 1

    def describe(self):
        if self.kind == "unused":
            return f"slab {self.address:#x}, unused"
        if self.kind != "small":
            return f"slab {self.address:#x}, one block of {self.block_size} bytes ({self.kind})"
        return (
            f"slab {self.address:#x} at {self.start:#x}, {self.capacity} blocks of "
            f"{self.block_size} bytes, {self.threaded} threaded, need {self.need} + {self.reserve}, {self.mail}"
        )


class Heap:
    """src/heap/heap.h."""

    def __init__(self, value, masu):
        self.value = value
        self.masu = masu
        self.address = address_of(value.address)
        self.tag = int(value["hot"]["tag"])

    def state(self):
        words = []
        if int(self.value["sealed"]):
            words.append("sealed")
        elif self.value["is_parked"]:
            words.append("parked")
        elif self.address == self.masu.orphan:
            words.append("orphan heap")
        else:
            threads = self.masu.threads.get(self.address)
            words.append("in use by thread " + ", ".join(threads) if threads else "in use")
        if int(self.value["busy"]):
            words.append("busy")
        if int(self.value["needs_repair"]):
            words.append("to be repaired")
        return ", ".join(words)

    def hand(self, size_class):
        return chain(address_of(self.value["hot"]["hand"][size_class]))

    def open_slabs(self, size_class):
        """Those on the list of the class; the list's nodes are members of the slabs."""
        head = self.value["avail"][size_class]
        slab_type = self.masu.slab_type
        offset = [f.bitpos // 8 for f in slab_type.fields() if f.name == "avail"][0]
        at, end, seen = address_of(head["next"]), address_of(head.address), set()
        while at not in (0, end) and at not in seen:
            seen.add(at)
            slab = typed(at - offset, slab_type)
            yield Slab(slab)
            at = address_of(slab["avail"]["next"])

    def spare(self, size_class):
        at = address_of(self.value["spare"][size_class])
        return Slab(typed(at, self.masu.slab_type)) if at else None

    def slots(self):
        return [slot for slot in array(self.value["slots"]) if int(slot["count"])]

    def queue(self):
        first = address_of(self.value["queue"])
        return follow(typed(first, self.masu.slab_type).address, "queued") if first else iter(())

    def front(self):
        """The large blocks kept ready: (start, slices, whether a profiler wants to see it when it is taken)."""
        entries = [int(e) for e in array(self.value["hot"]["front"])]
        return [(e & -SLICE_SIZE, e & (FRONT_DUE - 1), bool(e & FRONT_DUE)) for e in entries if e]


class Masu:
    """The allocator of the selected program, read anew by each command."""

    def __init__(self):
        roster = variable("roster", "roster.c")
        self.descriptors = variable("descriptors", "slab.c")
        self.supply = variable("supply", "supply.c")
        self.all_regions = variable("all_regions", "regions.c")
        self.mappings = variable("mappings", "mappings.c")
        self.map_top = address_of(variable("map_top", "pagemap.c").address)
        self.heaps = [Heap(h, self) for h in follow(roster["all"], "next")]
        self.orphan = address_of(roster["orphan"])
        self.slab_type = self.descriptors["unused"].type.target()
        at = {f.name: f.bitpos // 8 for f in self.descriptors["chunks"].type.target().strip_typedefs().fields()}
        self.stand_in = at["stand_ins"] - at["slabs"]
        self.classes = [int(size) for size in array(variable("class_table", "sizes.c")["sizes"])]
        self.threads = self.find_threads()

    @staticmethod
    def find_threads():
        """Heap address -> numbers of the threads whose heap it is, where gdb can tell."""
        found = {}
        selected = gdb.selected_thread()
        for thread in gdb.selected_inferior().threads() if selected else ():
            try:
                thread.switch()
                hot = address_of(variable("thread_hot", "thread.c"))
                found.setdefault(hot, []).append(str(thread.num))
            except (gdb.error, gdb.GdbError):
                continue
        if selected:
            selected.switch()
        return found

    def entry(self, address):
        """The pagemap's entry for an address: (tag, descriptor, whether another one stands in for it there); zeros for none."""
        if not 0 <= address < 1 << ADDRESS_BITS:
            return 0, 0, False
        leaf = word(self.map_top + (address >> LEAF_SHIFT) * 8)
        if not leaf:
            return 0, 0, False
        entry = word((leaf + (address >> SLICE_SHIFT) * 8) % (1 << 64))
        tag, descriptor = entry & 0xFFFF, entry >> 16
        stands_in = bool(descriptor & STAND_IN_BIT)
        return tag, descriptor - self.stand_in if stands_in else descriptor, stands_in

    def slabs(self):
        """Every descriptor that is in use."""
        for chunk in follow(self.descriptors["chunks"], "next"):
            for i in range(int(chunk["taken"])):
                if int(chunk["slabs"][i]["kind"]):
                    yield Slab(chunk["slabs"][i])

    def heap_at(self, address):
        return next((h for h in self.heaps if h.address == address), None)

    def regions(self):
        return follow(self.all_regions["first"], "next")


# ---- masu heaps ----------------------------------------------------------------------


def plural(n, thing):
    return f"{n} {thing}" + ("" if n == 1 else "s")


def print_heap(heap):
    print(f"heap {heap.tag} at {heap.address:#x}: {heap.state()}")
    slots, queued = heap.slots(), len(list(heap.queue()))
    if queued:
        print(f"  {plural(queued, 'slab')} with mail on the queue")
    if slots:
        blocks = sum(int(s["count"]) for s in slots)
        print(f"  {plural(blocks, 'block')} of {plural(len(slots), 'slab')} waiting to be sent")
    for start, slices, due in heap.front():
        print(f"  in front: {slices * SLICE_SIZE} bytes at {start:#x}" + (", due for a sample" if due else ""))
    rows = []
    for c, size in enumerate(heap.masu.classes):
        hand, slabs = len(list(heap.hand(c))), list(heap.open_slabs(c))
        free = sum(len(list(s.free_blocks())) for s in slabs)
        spare = heap.spare(c)
        if hand or slabs or spare:
            rows.append((c, size, hand, len(slabs), free, "yes" if spare else ""))
    if rows:
        rows.insert(0, ("class", "size", "in hand", "slabs open", "free there", "spare"))
    for row in rows:
        print("  {:>5} {:>6} {:>8} {:>10} {:>10} {}".format(*row).rstrip())


class HeapsCommand(gdb.Command):
    """masu heaps [TAG]: every heap, or the one with that tag.

For each class: blocks ready in the hand, slabs on the open list, free blocks in them
(those that wait in the mail not counted), and whether an empty slab is kept. Slabs that
are parked or queued stand on no list; `masu address` finds them."""

    def __init__(self):
        super().__init__("masu heaps", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        masu = Masu()
        wanted = int(evaluate(argument)) if argument else None
        heaps = [h for h in masu.heaps if wanted in (None, h.tag)]
        if not heaps:
            raise gdb.GdbError("no such heap" if wanted is not None else "no heap yet")
        for heap in sorted(heaps, key=lambda h: h.tag):
            print_heap(heap)


# ---- masu address --------------------------------------------------------------------


def block_state(masu, slab, block, index):
    """Where a small block is, as far as can be told."""
    if slab.mail.state == "DEAD":
        return "gone: the slab's memory went back to the supply"
    if index >= slab.threaded:
        return "never handed out"
    if block in slab.free_blocks():
        return "free, on the slab's list"
    if slab.is_purged(block):
        return "free, in a page that was given back"
    if block in chain(slab.mail.head):
        return "free, in the slab's mail"
    for heap in masu.heaps:
        if heap.address == slab.owner and block in heap.hand(int(slab.value["size_class"])):
            return f"free, in the hand of heap {heap.tag}"
        for slot in heap.slots():
            if block in chain(address_of(slot["head"])):
                return f"free, waiting to be sent by heap {heap.tag}"
    if block in chain(address_of(variable("deferred", "thread.c"))):
        return "freed by a signal handler, deferred"
    return "in use"


def print_small(masu, slab, address, tag, watched):
    offset = address - slab.start
    index, inside = divmod(offset, slab.block_size)
    if index >= slab.capacity:
        print(f"{address:#x}: behind the last block of a slab")
    else:
        block = address - inside
        where = f"{inside} bytes into the block at {block:#x}" if inside else "start of a block"
        print(f"{address:#x}: {where}, {slab.block_size} bytes, number {index} of {slab.capacity}")
        print(f"  block: {block_state(masu, slab, block, index)}")
    owner = masu.heap_at(slab.owner)
    print(f"  {slab.describe()}")
    if owner:
        print(f"  heap {owner.tag} at {owner.address:#x}: {owner.state()}")
        if watched:
            print(f"  watched: an observer looks at some of its blocks; the pagemap says tag {tag}")
        elif owner.tag != tag:
            print(f"  the pagemap says tag {tag}: this is wrong")


def print_large(masu, slab, address):
    inside = address - slab.start
    where = f"{inside} bytes into the block at {slab.start:#x}" if inside else "start of a block"
    print(f"{address:#x}: {where}, {slab.block_size} bytes")
    kept = [h.tag for h in masu.heaps for at, _, _ in h.front() if at == slab.start]
    print("  block: " + (f"free, in front of heap {kept[0]}" if kept else "in use"))
    print(f"  {slab.describe()}")


def find_slab(masu, address):
    """(slab, tag, is it watched): by the pagemap, or, inside a large block, by looking at all."""
    tag, descriptor, watched = masu.entry(address)
    if descriptor:
        return Slab(typed(descriptor, masu.slab_type)), tag, watched
    for slab in masu.slabs():
        if slab.kind in ("run", "direct") and slab.holds(address):
            return slab, 0, False
    return None, 0, False


def find_elsewhere(masu, address):
    """What else of masu lies at an address; None: nothing."""
    for entry in array(masu.mappings["ranges"]):
        start, size = address_of(entry["start"]), int(entry["slices"]) * SLICE_SIZE
        if start <= address < start + size:
            return f"in a freed mapping of {size} bytes kept for reuse, {start:#x}"
    for page in pages(masu):
        if page.base <= address < page.base + HUGE_SLICES * SLICE_SIZE:
            i = (address - page.base) >> SLICE_SHIFT
            state = {"#": "taken", "o": "free, perhaps resident", ".": "free"}[page.slices()[i]]
            return f"in slice {i} of the huge page at {page.base:#x}: {state}"
    for region in masu.regions():
        base = address_of(region["base"])
        if base <= address < base + int(region["count"]) * HUGE_SLICES * SLICE_SIZE:
            return f"in the region at {base:#x}, never used"
    for heap in masu.heaps:
        if heap.address <= address < heap.address + heap.value.type.sizeof:
            return f"in heap {heap.tag} itself"
    for chunk in follow(masu.descriptors["chunks"], "next"):
        first = address_of(chunk["slabs"].address)
        if first <= address < first + chunk["slabs"].type.sizeof:
            index = (address - first) // masu.slab_type.sizeof
            return "in a descriptor: " + Slab(chunk["slabs"][index]).describe()
    return None


class AddressCommand(gdb.Command):
    """masu address ADDRESS: the slab, heap and block that an address belongs to.

A block is shown as free where it is found on one of masu's lists. What a thread held in
a register when the program stopped is on none, and shown as in use."""

    def __init__(self):
        super().__init__("masu address", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, from_tty):
        if not argument:
            raise gdb.GdbError("which address?")
        address = address_of(evaluate(argument))
        masu = Masu()
        slab, tag, watched = find_slab(masu, address)
        if slab is None:
            found = find_elsewhere(masu, address)
            print(f"{address:#x}: {found or 'not of masu'}")
        elif slab.kind == "small":
            print_small(masu, slab, address, tag, watched)
        else:
            print_large(masu, slab, address)


# ---- masu supply ---------------------------------------------------------------------


class Page:
    """One huge page, src/pages/supply.h."""

    def __init__(self, value):
        self.base = address_of(value["base"])
        self.used, self.dirty = int(value["used"]), int(value["dirty"])
        self.committed = bool(value["committed"])
        self.longest = int(value["longest"])

    def slices(self):
        def sign(i):
            return "#" if self.used >> i & 1 else "o" if self.dirty >> i & 1 else "."

        return "".join(sign(i) for i in range(HUGE_SLICES))

    def looks_like(self, other):
        return (self.committed, self.slices()) == (other.committed, other.slices())


def pages_of(region):
    return [Page(region["pages"][i]) for i in range(int(region["touched"]))]


def pages(masu):
    return (page for region in masu.regions() for page in pages_of(region))


def print_region(region):
    count, touched = int(region["count"]), int(region["touched"])
    print(
        f"region at {address_of(region['base']):#x}: {plural(count, 'huge page')}, "
        f"{touched} touched, {int(region['used'])} in use"
    )
    found = pages_of(region)
    i = 0
    while i < len(found):
        page, text = found[i], found[i].slices()
        alike = 1  # neighbours that look the same take one line
        while i + alike < len(found) and found[i + alike].looks_like(page):
            alike += 1
        times = f"  and {alike - 1} more" if alike > 1 else ""
        if page.committed:
            print(f"  {page.base:#x} {text} longest free run {page.longest}{times}")
        else:
            print(f"  {page.base:#x} not committed{times}")
        i += alike


class SupplyCommand(gdb.Command):
    """masu supply: regions, their huge pages slice by slice, and the figures.

# in use (or a system call on it is pending), o free but perhaps resident, . free."""

    def __init__(self):
        super().__init__("masu supply", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        masu = Masu()
        for region in masu.regions():
            print_region(region)
        kept = int(masu.mappings["kept"])
        if kept:
            print(f"freed mappings kept for reuse: {kept} bytes")
        figures = masu.supply["figures"]
        for field in figures.type.fields():
            value = kept if field.name == "kept" else int(figures[field.name])
            print(f"{field.name:>10} {value:>14}")
        transit = int(masu.supply["in_transit"])
        if transit:
            print(f"{plural(transit, 'system call')} pending")


# ---- Printers ------------------------------------------------------------------------


class MailFunction(gdb.Function):
    """$masu_mail(WORD): a slab's mail word, decoded."""

    def __init__(self):
        super().__init__("masu_mail")

    def invoke(self, value):
        return str(Mail(int(value)))


def plain_fields(value, skipped):
    for field in value.type.strip_typedefs().fields():
        if field.name not in skipped:
            yield field.name, value[field.name]


class SlabPrinter:
    """All fields, the mail word decoded."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        return KINDS[int(self.value["kind"])] + " slab"

    def children(self):
        for name, field in plain_fields(self.value, ()):
            if name == "mail":
                mail = Mail(int(field), address_of(self.value["start"]))
                yield "mail.version", mail.version
                yield "mail.count", mail.count
                yield "mail.head", gdb.Value(mail.head).cast(self.value["free"].type)
                yield "mail.state", mail.state
            elif name == "kind":
                yield name, KINDS[int(field)]
            else:
                yield name, field


class HeapPrinter:
    """Without the classes that are empty."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        return f"heap {int(self.value['hot']['tag'])}"

    def children(self):
        yield from plain_fields(self.value, ("hot", "avail", "slots", "spare"))
        for c, head in enumerate(array(self.value["hot"]["hand"])):
            if address_of(head):
                yield f"hand[{c}]", head
        for c, head in enumerate(array(self.value["avail"])):
            if head.address is not None and address_of(head["next"]) != address_of(head.address):
                yield f"avail[{c}].next", head["next"]
        for c, spare in enumerate(array(self.value["spare"])):
            if address_of(spare):
                yield f"spare[{c}]", spare
        for i, slot in enumerate(array(self.value["slots"])):
            if int(slot["count"]):
                yield f"slots[{i}]", slot
        for i, entry in enumerate(array(self.value["hot"]["front"])):
            if int(entry):
                yield f"front[{i}]", entry


class MasuPrinters(gdb.printing.PrettyPrinter):
    """By the struct's name and the fields that only masu's has: programs have heaps too."""

    PRINTERS = {
        "slab": ({"mail", "need", "threaded"}, SlabPrinter),
        "heap": ({"hot", "avail", "spare", "queue"}, HeapPrinter),
    }

    def __init__(self):
        super().__init__("masu")

    def __call__(self, value):
        type_ = gdb.types.get_basic_type(value.type)
        if type_.code != gdb.TYPE_CODE_STRUCT or type_.tag not in self.PRINTERS:
            return None
        wanted, printer = self.PRINTERS[type_.tag]
        if not wanted <= {field.name for field in type_.fields()}:
            return None
        return printer(value)


class MasuCommand(gdb.Command):
    """Look into the allocator masu: masu heaps, masu address, masu supply."""

    def __init__(self):
        super().__init__("masu", gdb.COMMAND_DATA, prefix=True)

    def invoke(self, argument, from_tty):
        gdb.execute("help masu")


MasuCommand()
HeapsCommand()
AddressCommand()
SupplyCommand()
MailFunction()
gdb.printing.register_pretty_printer(None, MasuPrinters(), replace=True)
