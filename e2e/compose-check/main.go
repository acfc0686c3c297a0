// Loads compose files with the library that docker compose loads them with: its schema, its merging,
// its rules. Says what is wrong with each, and exits with 1 if something is.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/cli"
)

func check(file string) error {
	options, err := cli.NewProjectOptions(
		[]string{file},
		cli.WithWorkingDirectory(filepath.Dir(file)),
		cli.WithProfiles([]string{"*"}),
	)
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d services\n", file, len(project.Services))
	return nil
}

func main() {
	code := 0
	for _, file := range os.Args[1:] {
		if err := check(file); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			code = 1
		}
	}
	os.Exit(code)
}
