// No test: what the others have besides their arena.
#include "thesis.h"

int main(int argc, char **argv)
{
	share(argc, argv);
	return finish();
}
