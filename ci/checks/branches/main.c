// Replays a file of steps (lab/conform/src/states.rs) in mm/vma.c, and compares the list of VMAs after each step.
// Prints what differs, and the count of steps, calls and differences. A list that differs is replaced.
// usage: replay FILE
#include "calls.h"
#include <stdio.h>
#include <string.h>

#define PROCESSES 8
#define MOST_SHOWN 20

static struct process processes[PROCESSES];
// The lists after the step, until it is made.
static struct list next[PROCESSES];
static bool changed[PROCESSES], ended[PROCESSES];
static unsigned long new_numbers[PROCESSES][3];
// Process 0, as long as it is the one that has opened the userfaultfd.
static bool watcher;
static unsigned long seed, step_number, steps, compared, differences;

static void differs(unsigned process, const char *what, unsigned long addr, unsigned long theirs, unsigned long ours)
{
	if (differences++ < MOST_SHOWN)
		printf("seed %#lx step %lu process %u: %s at %#lx: kernel %#lx, mm/vma.c %#lx\n", seed, step_number,
		       process, what, addr, theirs, ours);
}

// Ends an address space as exit does.
static void destroy(struct process *process)
{
	struct unlink_vma_file_batch batch;
	struct vm_area_struct *vma;

	if (!process->mm)
		return;
	VMA_ITERATOR(vmi, process->mm, 0);
	acting.process = process;
	unlink_file_vma_batch_init(&batch);
	for_each_vma(vmi, vma)
		unlink_file_vma_batch_add(&batch, vma);
	unlink_file_vma_batch_final(&batch);
	vma_iter_set(&vmi, 0);
	for_each_vma(vmi, vma) {
		unlink_anon_vmas(vma);
		vma_mark_detached(vma);
		remove_vma(vma);
	}
	__mt_destroy(&process->mm->mm_mt);
	free(process->mm);
	process->mm = NULL;
}

static void create(struct process *process, const struct list *list)
{
	size_t n;

	process->mm = calloc(1, sizeof(*process->mm));
	mt_init_flags(&process->mm->mm_mt, MT_FLAGS_ALLOC_RANGE | MT_FLAGS_LOCK_EXTERN);
	acting.process = process;
	for (n = 0; n < list->count; n++)
		insert_row(process->mm, &list->rows[n]);
}

// Compares the anon_vma of a VMA. A fault that gave it one is made here: faults come after the call's other work.
static bool same_anon(struct vm_area_struct *vma, const struct row *row)
{
	if (row->anon && !vma->anon_vma) {
		struct anon_vma *anon = find_mergeable_anon_vma(vma);

		if (!anon && is_known_anon(row->anon))
			return false;
		set_anon(vma, anon ? anon : anon_of(row->anon), true);
	}
	if (vma->anon_vma && is_unnamed_anon(vma->anon_vma) && row->anon && !is_known_anon(row->anon))
		name_anon(vma->anon_vma, row->anon);
	return id_of_anon(vma->anon_vma) == row->anon &&
	       (!row->anon || list_is_singular(&vma->anon_vma_chain) == row->singular);
}

static bool compare(unsigned number, struct process *process, const struct list *list)
{
	VMA_ITERATOR(vmi, process->mm, 0);
	struct vm_area_struct *vma;
	unsigned long before = differences;
	size_t n = 0;

	for_each_vma(vmi, vma) {
		const struct row *row = &list->rows[n++];
		bool anonymous;

		if (n > list->count) {
			differs(number, "count", vma->vm_start, list->count, process->mm->map_count);
			return false;
		}
		// A stack grows for a call that touches memory as well.
		if (vma->vm_start > row->start && vma->vm_end == row->end && vma->vm_flags & VM_GROWSDOWN) {
			acting.process = process;
			expand_downwards(vma, row->start);
			vma_iter_set(&vmi, vma->vm_end - 1);
		}
		anonymous = row->kind == ANONYMOUS || (row->kind == DEV_ZERO && !(row->flags & VM_SHARED));
		if (vma->vm_start != row->start)
			differs(number, "start", row->start, row->start, vma->vm_start);
		else if (vma->vm_end != row->end)
			differs(number, "end", row->start, row->end, vma->vm_end);
		else if (vma->vm_pgoff != row->pgoff)
			differs(number, "page offset", row->start, row->pgoff, vma->vm_pgoff);
		else if (id_of_file(vma->vm_file) != row->file || vma_is_anonymous(vma) != anonymous)
			differs(number, "file", row->start, row->file, id_of_file(vma->vm_file));
		else if ((unsigned long)vma->vm_policy != row->policy)
			differs(number, "policy", row->start, row->policy, (unsigned long)vma->vm_policy);
		else if (vma->vm_userfaultfd_ctx.id != row->uffd)
			differs(number, "userfaultfd", row->start, row->uffd, vma->vm_userfaultfd_ctx.id);
		// What is not decided by mm/vma.c, such as the KSM setting of a process, changes flags alone.
		vma->flags.__vma_flags[0] = row->flags;
		if (differences > before)
			return false;
	}
	if (n < list->count) {
		differs(number, "count", list->rows[n].start, list->count, n);
		return false;
	}
	if (process->mm->map_count != n)
		differs(number, "map_count", 0, n, process->mm->map_count);
	n = 0;
	vma_iter_set(&vmi, 0);
	for_each_vma(vmi, vma) {
		const struct row *row = &list->rows[n++];

		if (!same_anon(vma, row))
			differs(number, "anon_vma", row->start, row->anon, id_of_anon(vma->anon_vma));
	}
	return differences == before;
}

static void fork_process(struct process *parent, unsigned child)
{
	struct process *process;

	if (child >= PROCESSES || !changed[child])
		return;
	process = &processes[child];
	*process = *parent;
	process->list = (struct list){ 0 };
	create(process, &next[child]);
	process->mm->flags = parent->mm->flags;
}

static void make_step(const struct step *step)
{
	struct process *process = &processes[step->process];
	bool by_descriptor = !strcmp(step->name, "ioctl");
	unsigned number = by_descriptor ? 0 : step->process, n;
	long expected, got;

	steps++;
	if (by_descriptor)
		process = watcher ? &processes[0] : NULL;
	if (process && process->mm) {
		const struct list *after = changed[number] ? &next[number] : &process->list;

		if (!strcmp(step->name, "fork"))
			fork_process(process, step->args[0]);
		else if (strcmp(step->name, "exit") && !make(process, step, after, &expected, &got))
			differs(number, step->name, step->args[0], expected, got);
	}
	for (n = 0; n < PROCESSES; n++) {
		process = &processes[n];
		if (ended[n]) {
			destroy(process);
			watcher &= n != 0;
			process->list.count = 0;
		}
		if (changed[n]) {
			process->start_brk = new_numbers[n][1];
			process->brk = new_numbers[n][2];
			free(process->list.rows);
			process->list = next[n];
			next[n] = (struct list){ 0 };
		}
		if (process->mm && (changed[n] || n == number)) {
			compared++;
			if (changed[n])
				process->mm->def_flags = new_numbers[n][0];
			if (!compare(n, process, &process->list)) {
				mm_flags_t flags = process->mm->flags;

				destroy(process);
				create(process, &process->list);
				process->mm->flags = flags;
				process->mm->def_flags = new_numbers[n][0];
			}
		}
		changed[n] = ended[n] = false;
	}
	step_number++;
}

static void begin_sequence(void)
{
	unsigned n;

	for (n = 0; n < PROCESSES; n++) {
		destroy(&processes[n]);
		free(processes[n].list.rows);
		processes[n] = (struct process){ 0 };
		memset(processes[n].limits, 0xff, sizeof(processes[n].limits));
		processes[n].limits[3] = processes[n].limits[8] = 8ul << 20;
	}
	forget_objects();
	watcher = true;
	step_number = 0;
}

// Reading.

static unsigned long number(char **text)
{
	return strtoul(*text, text, 16);
}

static void read_step(struct step *step, char *text)
{
	char *word = strtok(text, " \n"), *end;
	size_t n = 0;

	free(step->data);
	memset(step, 0, sizeof(*step));
	step->process = strtoul(word, NULL, 16);
	word = strtok(NULL, " \n");
	step->outcome = *word;
	step->result = strtoul(word + 1, NULL, 16);
	word = strtok(NULL, " \n");
	snprintf(step->name, sizeof(step->name), "%s", word);
	while ((word = strtok(NULL, " \n")) && *word != ':')
		if (n < 6)
			step->args[n++] = strtoul(word, &end, 16);
	while (word && (word = strtok(NULL, " \n"))) {
		step->data = realloc(step->data, (step->words + 1) * sizeof(*step->data));
		step->data[step->words++] = strtoul(word, &end, 16);
	}
}

static void read_list(char *text, FILE *in, char **line, size_t *room)
{
	unsigned process = number(&text);
	struct list *old = &processes[process].list, *list = &next[process];
	size_t head, tail, between, n;

	for (n = 0; n < 3; n++)
		new_numbers[process][n] = number(&text);
	head = number(&text);
	tail = number(&text);
	between = number(&text);
	list->count = head + between + tail;
	list->rows = calloc(list->count + 1, sizeof(*list->rows));
	memcpy(list->rows, old->rows, head * sizeof(*list->rows));
	memcpy(list->rows + head + between, old->rows + old->count - tail, tail * sizeof(*list->rows));
	for (n = head; n < head + between; n++) {
		unsigned long *fields = (unsigned long *)&list->rows[n];
		size_t field;

		if (getline(line, room, in) < 2)
			exit(2);
		text = *line + 1;
		for (field = 0; field < sizeof(struct row) / sizeof(*fields); field++)
			fields[field] = number(&text);
	}
	changed[process] = true;
}

int main(int count, char **args)
{
	struct step step = { 0 };
	char *line = NULL;
	size_t room = 0;
	enum { NOTHING, BEGUN, STEP } pending = NOTHING;
	FILE *in = count == 2 ? fopen(args[1], "r") : NULL;
	bool more;

	if (!in) {
		fprintf(stderr, "usage: replay FILE\n");
		return 2;
	}
	maple_tree_init();
	vma_state_init();
	do {
		more = getline(&line, &room, in) > 0;
		if (!more || *line == 'S' || *line == 'X') {
			if (pending == STEP)
				make_step(&step);
			if (pending == BEGUN) {
				processes[0].list = next[0];
				processes[0].start_brk = new_numbers[0][1];
				processes[0].brk = new_numbers[0][2];
				next[0] = (struct list){ 0 };
				changed[0] = false;
				create(&processes[0], &processes[0].list);
				processes[0].mm->def_flags = new_numbers[0][0];
			}
			pending = NOTHING;
		}
		if (!more)
			break;
		char *text = line + 1;

		switch (*line) {
		case 'S':
			begin_sequence();
			seed = number(&text);
			sysctl_max_map_count = number(&text);
			pending = BEGUN;
			break;
		case 'X':
			read_step(&step, line + 1);
			pending = STEP;
			break;
		case 'P':
			read_list(text, in, &line, &room);
			break;
		case 'E':
			ended[number(&text)] = true;
			break;
		}
	} while (more);
	printf("%lu steps, %lu lists compared: %lu differences, %lu warnings\n", steps, compared, differences,
	       warnings);
	return differences || warnings;
}
