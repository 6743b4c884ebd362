// Not a test: shows the mappings that the other programs have outside of their arena.
#include "thesis.h"

int main(int argc, char **argv)
{
	share(argc, argv);
	return finish();
}
